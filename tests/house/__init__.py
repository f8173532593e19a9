"""The house rules as tests: layers, tidiness, generated code, documents."""
