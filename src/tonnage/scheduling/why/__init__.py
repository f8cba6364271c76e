"""Why a pod or gang waits, and the smallest change that would make it fit."""
