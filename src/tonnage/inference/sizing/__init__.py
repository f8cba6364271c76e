"""Which GPUs, MIG instances and shares of a GPU serve a model, in how many replicas, on which instances, at what cost.

``request`` says what is asked for, ``cards`` what there is, ``fit`` what memory allows, ``point`` what a replica then
does (the estimator), ``options`` puts them together with prices, ``loading`` and ``warnings`` say what else to expect
of an option, ``training`` is the memory of training, ``rules`` are published rules of thumb beside the facts, ``plot``
draws.
"""
