"""An LLM inference server small enough to read in an afternoon.

The modules follow a request on its way; `README.md` has the picture. Nothing is
imported here, so that `tutorial-server --help` does not wait for torch.
"""

__version__ = "0.1.0"
