"""The rules: each looks at a set of objects and yields what never runs, by a cause of its own."""
