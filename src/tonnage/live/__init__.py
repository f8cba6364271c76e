"""World 2: a Kubernetes API. Informers say what there is; a decision is checked again, assumed, and becomes calls."""
