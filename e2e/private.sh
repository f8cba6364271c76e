#!/bin/bash
# Run a command in network, mount and pid namespaces of its own, as root:
#   private.sh COMMAND [ARG...]
# Loopback is the only interface, so nothing in there reaches another machine, and when the command ends the kernel
# ends all that it left running. Bridges, routes and net.* settings made inside are gone too.
set -euo pipefail
export TONNAGE_E2E_PRIVATE=1
exec unshare --net --mount --pid --fork --mount-proc --kill-child=SIGKILL \
    bash -c 'ip link set lo up && "$@"' private "$@"
