"""Log filters."""

import pytest

from sepp.config.directives import DirectiveError, parse_filter


@pytest.mark.parametrize(
    ("text", "target", "level"),
    [
        ("info", "sepp.service", "info"),
        ("INFO", "sepp.service", "info"),
        ("trace", "segstore", "trace"),
        ("off", "sepp", "off"),
        ("info,sepp.rpc=debug", "sepp.rpc", "debug"),
        ("info,sepp.rpc=debug", "sepp.rpc.server", "debug"),
        ("info,sepp.rpc=debug", "sepp.rpcx", "info"),
        ("info,sepp.rpc=debug", "sepp", "info"),
        ("info,sepp=warn,sepp.rpc=debug", "sepp.rpc.http2", "debug"),
        ("info,sepp=warn,sepp.rpc=debug", "sepp.auth", "warn"),
        ("sepp::rpc=debug", "sepp.rpc", "debug"),
        ("sepp=debug", "segstore", "error"),
        ("debug,info", "sepp", "info"),
        ("sepp=debug,sepp=warn", "sepp", "warn"),
        (" info , sepp = debug ,", "sepp", "debug"),
        ("info,lsm_tree=warn,fjall=warn", "sepp", "info"),
        ("info,lsm_tree=warn,fjall=warn", "fjall", "warn"),
        ("info,anycorn.error=off", "anycorn.error", "off"),
    ],
)
def test_longest_target_that_fits_decides(text: str, target: str, level: str) -> None:
    assert parse_filter(text).level(target) == level


@pytest.mark.parametrize(
    "text",
    ["", ",", " ", "verbose", "inof", "sepp", "sepp=", "=info", "sepp=loud", "sepp=info=x",
     "[span]=info", "sepp[span{a=1}]=info", "sepp info", "a\nb=info", "5", "info;sepp=debug"],
)  # fmt: skip
def test_bad_directive_is_refused(text: str) -> None:
    with pytest.raises(DirectiveError) as caught:
        parse_filter(text)

    assert "\n" not in str(caught.value)
