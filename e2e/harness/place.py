"""Owns where the server under test is. `cargo xtask test` says so in the environment."""

import os
import pathlib

URL = os.environ["E2B_API_URL"]
KEY = os.environ["E2B_API_KEY"]
DOMAIN = os.environ["COFFERDAM_E2E_DOMAIN"]
DATA_DIR = pathlib.Path(os.environ["COFFERDAM_E2E_DATA_DIR"])
BINARY = os.environ["COFFERDAM_E2E_BINARY"]
PID = int(os.environ["COFFERDAM_E2E_PID"])
HOST, PORT = URL.removeprefix("http://").rsplit(":", 1)
