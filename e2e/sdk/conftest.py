"""Owns the sandboxes of the SDK suites, made by the official SDK itself, and a small Python project to run in them."""

import pytest
import pytest_asyncio
from e2b import AsyncSandbox, Sandbox

PROJECT = {
    "pyproject.toml": '[project]\nname = "bank"\nversion = "1.0"\n',
    "bank/__init__.py": "",
    "bank/account.py": (
        "class Account:\n"
        "    def __init__(self):\n"
        "        self.balance = 0\n\n"
        "    def pay(self, amount):\n"
        "        if amount <= 0:\n"
        "            raise ValueError('amount')\n"
        "        self.balance += amount\n"
    ),
    "tests/__init__.py": "",
    "tests/test_account.py": (
        "import unittest\n"
        "from bank.account import Account\n\n\n"
        "class AccountTest(unittest.TestCase):\n"
        "    def test_pay(self):\n"
        "        account = Account()\n"
        "        account.pay(5)\n"
        "        self.assertEqual(account.balance, 5)\n\n"
        "    def test_refuses(self):\n"
        "        with self.assertRaises(ValueError):\n"
        "            Account().pay(0)\n\n"
        "    def test_wrong(self):\n"
        "        self.assertEqual(Account().balance, 1)\n"
    ),
    "report.py": (
        "import json, unittest\n"
        "result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.discover('.'))\n"
        "json.dump({'run': result.testsRun, 'failures': [t.id() for t, _ in result.failures]},\n"
        "          open('report.json', 'w'))\n"
    ),
}


@pytest.fixture
def project():
    """A Python project with two tests that pass and one that fails: path to text."""
    return dict(PROJECT)


@pytest.fixture
def sandbox():
    """A sandbox of the synchronous SDK, gone after the test."""
    made = Sandbox.create(timeout=300)
    yield made
    made.kill()


@pytest_asyncio.fixture
async def async_sandbox():
    """A sandbox of the asynchronous SDK, gone after the test."""
    made = await AsyncSandbox.create(timeout=300)
    yield made
    await made.kill()
