"""Prefill and decode on different engines: whether to split a request, and what moving its KV blocks takes."""
