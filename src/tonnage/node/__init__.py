"""The agent on a GPU node: what the machine's cards are."""
