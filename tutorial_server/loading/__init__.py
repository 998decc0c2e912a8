"""What `models.py` leans on: which model fits here, where its files are, and reading them."""
