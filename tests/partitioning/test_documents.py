"""Whatever stands in a configuration file, it is read or refused, with its place."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_seeds import examples
from tonnage.errors import InputError
from tonnage.partitioning import device_plugin, documents, mig_cards, mig_hooks, mig_parted

SCALARS = (
    st.none() | st.booleans() | st.integers(-3, 9) | st.sampled_from(["all", "v1", "1g.10gb", "0x233010DE", "gpu"])
)
WORDS = """version mig-configs devices device-filter mig-enabled mig-devices 1g.10gb 7g.80gb hooks command args envs
apply-exit flags plugin gfd migStrategy sleepInterval deviceListStrategy sharing timeSlicing mps resources name replicas
rename renameByDefault imex channelIDs gpus pattern kind data"""
KEYS = st.sampled_from(WORDS.split())
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=30
)
IDS = st.sampled_from(["0x233010DE", "0x20B010DE", "0x20B710DE:0x123410DE", "0x999910DE"])
GOOD_ENTRIES = st.fixed_dictionaries(
    {
        "devices": st.just("all") | st.lists(st.integers(0, 7), min_size=1, max_size=3, unique=True),
        "mig-enabled": st.just(True),
        "mig-devices": st.dictionaries(
            st.sampled_from(["1g.10gb", "2g.20gb", "3g.40gb", "1g.6gb", "9g.9gb"]), st.integers(1, 8), max_size=3
        ),
    },
    optional={"device-filter": IDS | st.lists(IDS, max_size=3)},
)
BAD_ENTRIES = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("devices", "mig-enabled", "mig-devices", "device-filter"), VALUES)
)
GOOD_SHARING = st.fixed_dictionaries(
    {
        "resources": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["gpu", "nvidia.com/mig-1g.10gb", "a b"]), "replicas": st.integers(1, 5)},
                optional={"rename": st.just("x"), "devices": st.just("all") | st.integers(0, 2)},
            ),
            min_size=1,
            max_size=2,
        )
    },
    optional={"renameByDefault": st.booleans(), "failRequestsGreaterThanOne": st.booleans()},
)


def configs(entries: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    named = st.dictionaries(KEYS, st.lists(entries, min_size=1, max_size=3), min_size=1, max_size=3)
    return st.fixed_dictionaries({"version": st.just("v1"), "mig-configs": named})


def plugin(sharing: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    strategies = st.fixed_dictionaries({"migStrategy": st.sampled_from(["none", "single", "mixed"])})
    kinds = st.dictionaries(st.sampled_from(["timeSlicing", "mps"]), sharing, min_size=1, max_size=2)
    return st.fixed_dictionaries({"sharing": kinds}, optional={"flags": strategies | VALUES, "imex": VALUES})


ANY = st.one_of(configs(GOOD_ENTRIES), configs(BAD_ENTRIES), plugin(GOOD_SHARING), plugin(VALUES), VALUES)


def refused_with_a_place(error: InputError, lines: int) -> None:
    for problem in error.problems:
        assert problem.where.file == "any.yaml"
        assert problem.where.line <= lines
        assert problem.message


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(value=ANY, wrapped=st.booleans())
def test_any_value_is_read_or_refused_with_its_place(value: Any, wrapped: bool) -> None:
    text = yaml.safe_dump(value, sort_keys=False)
    if wrapped:
        text = yaml.safe_dump({"kind": "ConfigMap", "data": {"a": text}}, sort_keys=False, default_style="|")
    lines = text.count("\n")
    try:
        found = documents.read(text, "any.yaml")
    except InputError as error:
        refused_with_a_place(error, lines)
        return
    for document in found:
        for parse in (mig_parted.parse, mig_hooks.parse, device_plugin.parse):
            try:
                made = parse(document)
            except InputError as error:
                refused_with_a_place(error, lines)
                continue
            if isinstance(made, mig_parted.Spec):
                mig_cards.outcomes(made)
                [again] = documents.read(mig_parted.render(made), "any.yaml")
                assert mig_parted.parse(again).configs == made.configs
            elif isinstance(made, device_plugin.Config):
                [again] = documents.read(device_plugin.render(made), "any.yaml")
                assert device_plugin.render(device_plugin.parse(again)) == device_plugin.render(made)
