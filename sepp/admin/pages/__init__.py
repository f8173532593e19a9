"""The pages under `/admin/`: rendered on the server, whole without script."""
