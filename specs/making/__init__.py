"""What the test vectors are made of; `make_vectors.py` writes them."""
