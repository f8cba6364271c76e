"""What kube-apiserver makes of an object of a built-in kind: its fields, defaults and stored form, and what it refuses.

Everything works on JSON objects, after kubernetes/kubernetes v1.36.3. Manifests are held to it by
:mod:`tonnage.objects.validate` (findings with file and line), requests to the embedded API by
:mod:`tonnage.apiserver` (causes of a 422).
"""
