"""Whether an image's CUDA runs on a node's driver and GPU. The public face: :func:`tonnage.cuda_fit.check.fit` over a
:class:`~tonnage.cuda_fit.need.Need` and a :class:`~tonnage.cuda_fit.host.Host`, and for pods
:mod:`tonnage.cuda_fit.pods`. "Not known" is an answer of its own and never a refusal."""
