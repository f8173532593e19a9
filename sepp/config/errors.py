"""What can be wrong with a configuration."""


class ConfigError(Exception):
    """The operator's configuration cannot be used; nothing of it has taken effect.

    The text is one line. It names section and key, the value unless it is a secret, the limit it
    breaks and, where more than one key is involved, the way out. Start-up prints it and exits
    with 1; a reload logs it and keeps the running configuration.

    Args:
        key: The dotted path of the key at fault, such as `limits.max_enqueue_batch`; "" for the
            file.
        text: What is wrong with it.
    """

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key}: {text}" if key else text)
        self.key = key
        self.text = text
