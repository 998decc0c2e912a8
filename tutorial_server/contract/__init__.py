"""Black-box checks of the server's HTTP contract, for anyone's server; needs no torch."""

from .check import Check, Result
from .run import ALL, contract_table, print_contract, run_contract

__all__ = ["ALL", "Check", "Result", "contract_table", "print_contract", "run_contract"]
