"""Prices: spot-checked rows, zones, history, and a person's own prices on top."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.facts import instances, prices, tables


@pytest.mark.parametrize(
    ("name", "micro_usd"),
    [
        ("g6e.12xlarge", 10_492_640),
        ("p5.48xlarge", 55_040_000),
        ("p4d.24xlarge", 21_957_642),
        ("g5.xlarge", 1_006_000),
        ("m5.large", 96_000),
        ("p5e.48xlarge", None),
        ("trn2.48xlarge", None),
    ],
)
def test_an_on_demand_price_is_that_of_the_price_list(name: str, micro_usd: int | None) -> None:
    assert prices.load().on_demand(name) == micro_usd


@pytest.mark.parametrize(
    ("small", "large", "ratio"),
    [
        ("g4dn.xlarge", "g4dn.metal", 1.86),
        ("g5.xlarge", "g5.48xlarge", 2.02),
        ("g6.xlarge", "g6.48xlarge", 2.07),
        ("g6e.xlarge", "g6e.48xlarge", 2.02),
        ("p5.4xlarge", "p5.48xlarge", 1.00),
    ],
)
def test_a_gpu_hour_costs_more_in_a_large_box_than_in_a_small_one(small: str, large: str, ratio: float) -> None:
    def per_gpu(name: str) -> float:
        price = prices.load().on_demand(name)
        assert price is not None
        return price / instances.get(name).gpu_count

    assert round(per_gpu(large) / per_gpu(small), 2) == ratio


@pytest.mark.parametrize(
    ("name", "zone", "micro_usd"),
    [
        ("g6e.12xlarge", "us-east-1a", 3_788_700),
        ("g5.48xlarge", "us-east-1b", 7_007_700),
        ("p5.48xlarge", "us-east-1e", 21_154_300),
        ("p5.4xlarge", "us-east-1a", None),
        ("m5.large", "us-east-1a", None),
        ("g6e.12xlarge", "us-east-1f", None),
    ],
)
def test_a_spot_price_is_that_of_its_zone_or_unknown(name: str, zone: str, micro_usd: int | None) -> None:
    assert prices.load().spot(name, zone) == micro_usd


def test_a_type_is_sold_on_demand_where_it_is_known_to_be_sold() -> None:
    offers = prices.load().offerings("p4de.24xlarge")
    assert [(offer.zone, offer.capacity_type) for offer in offers] == [
        ("us-east-1c", "on-demand"),
        ("us-east-1c", "spot"),
        ("us-east-1d", "on-demand"),
        ("us-east-1d", "spot"),
    ]


def test_a_type_without_a_known_spot_price_has_no_spot_offering() -> None:
    assert {offer.capacity_type for offer in prices.load().offerings("p5.4xlarge")} == {"on-demand"}


def test_a_type_whose_zones_are_not_known_is_sold_in_the_default_zones() -> None:
    offers = prices.load().offerings("m5.large")
    assert tuple(offer.zone for offer in offers) == prices.default_zones()
    assert prices.default_zones() == ("us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d")


@pytest.mark.parametrize(
    ("region", "name", "micro_usd"),
    [
        ("us-east-1", "p5.48xlarge", 55_040_000),
        ("us-gov-west-1", "p5.48xlarge", 66_048_000),
        ("us-gov-east-1", "g6.xlarge", 1_014_400),
        ("us-gov-east-1", "p5.48xlarge", None),
    ],
)
def test_a_region_has_prices_of_its_own(region: str, name: str, micro_usd: int | None) -> None:
    book = prices.load(region=region)
    assert book.on_demand(name) == micro_usd


@pytest.mark.parametrize("region", prices.regions())
def test_what_is_sold_in_a_region_is_sold_in_its_zones(region: str) -> None:
    book = prices.load(region=region)
    offers = [offer for found in book.by_type.values() for offer in found]
    assert book.region == region and len(book.by_type) > 400
    assert {offer.region for offer in offers} == {region}
    assert {offer.zone for offer in offers} >= set(prices.default_zones(region))
    assert region == "us-east-1" or {offer.capacity_type for offer in offers} == {"on-demand"}


def test_regions_with_zones_are_those_with_prices() -> None:
    assert set(prices.regions()) == {row["region"] for row in tables.rows("on_demand_prices.csv")}


def test_a_region_without_prices_names_those_that_have_some() -> None:
    with pytest.raises(InputError, match=r"'eu-west-1' are known.*us-east-1, us-gov-east-1, us-gov-west-1"):
        prices.load(region="eu-west-1")


def test_own_prices_stand_on_those_of_the_region(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("instance_type,usd_per_hour\ng4dn.xlarge,0.25\n")
    book = prices.load(file, "us-gov-east-1")
    assert book.region == "us-gov-east-1"
    assert book.on_demand("g4dn.xlarge") == 250_000
    assert {offer.zone for offer in book.offerings("g4dn.xlarge")} == set(prices.default_zones("us-gov-east-1"))


def test_spot_never_costs_more_than_on_demand() -> None:
    book = prices.load()
    for one in instances.all():
        on_demand = book.on_demand(one.name)
        spots = [offer.micro_usd_per_hour for offer in book.offerings(one.name) if offer.capacity_type == "spot"]
        assert not spots or (on_demand is not None and max(spots) <= on_demand)


def test_every_offering_is_dated_has_a_region_and_a_source() -> None:
    book = prices.load()
    assert (book.as_of, book.region) == ("2026-07-20", "us-east-1")
    for one in instances.all():
        for offer in book.offerings(one.name):
            assert offer.as_of and offer.source and offer.region == "us-east-1"
            assert offer.micro_usd_per_hour > 0


def test_the_price_book_refuses_a_type_that_does_not_exist() -> None:
    with pytest.raises(InputError, match=r"unknown instance type 'p5.46xlarge'"):
        prices.load().offerings("p5.46xlarge")


def test_history_tells_what_a_price_was_before() -> None:
    changes = prices.on_demand_history("p5.48xlarge")
    assert [(c.seen_on, c.old_micro_usd_per_hour, c.new_micro_usd_per_hour) for c in changes] == [
        ("2023-08-09", None, 98_320_000),
        ("2025-06-23", 98_320_000, 55_040_000),
    ]
    assert prices.on_demand_history("m5.large") == ()
    with pytest.raises(InputError, match="unknown instance type"):
        prices.on_demand_history("p5.46xlarge")


def test_the_last_change_of_a_price_is_the_price_of_today() -> None:
    for one in instances.all():
        for change in prices.on_demand_history(one.name)[-1:]:
            assert change.new_micro_usd_per_hour == prices.load().on_demand(one.name)


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


CSV = "instance_type,usd_per_hour,zone,capacity_type,as_of\n"


def test_an_own_price_without_a_zone_holds_wherever_the_type_is_sold(tmp_path: Path) -> None:
    book = prices.load(_write(tmp_path / "mine.csv", CSV + "g6e.12xlarge,7.5,,,2026-08-01\n"))
    mine = [offer for offer in book.offerings("g6e.12xlarge") if offer.capacity_type == "on-demand"]
    assert [offer.zone for offer in mine] == ["us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d"]
    assert {(offer.micro_usd_per_hour, offer.as_of) for offer in mine} == {(7_500_000, "2026-08-01")}
    assert mine[0].source.endswith("mine.csv:2")
    assert book.spot("g6e.12xlarge", "us-east-1a") == 3_788_700
    assert prices.load().on_demand("g6e.12xlarge") == 10_492_640


def test_an_own_spot_price_in_a_zone_changes_that_zone_only(tmp_path: Path) -> None:
    book = prices.load(_write(tmp_path / "mine.csv", CSV + "g6e.12xlarge,3,us-east-1b,spot,\n"))
    assert book.spot("g6e.12xlarge", "us-east-1b") == 3_000_000
    assert book.spot("g6e.12xlarge", "us-east-1a") == 3_788_700


def test_own_prices_of_another_region_stand_alone(tmp_path: Path) -> None:
    text = "- {instance_type: p5e.48xlarge, usd_per_hour: 60, zone: eu-north-1b}\n"
    book = prices.load(_write(tmp_path / "mine.yaml", text))
    assert book.region == "eu-north-1"
    assert book.as_of == "", "the date of the bundled prices is not theirs"
    assert [(offer.zone, offer.region) for offer in book.offerings("p5e.48xlarge")] == [("eu-north-1b", "eu-north-1")]
    assert book.offerings("g6e.12xlarge") == ()


def test_an_own_price_can_be_of_a_type_without_price(tmp_path: Path) -> None:
    book = prices.load(_write(tmp_path / "mine.yaml", "- {instance_type: trn2.48xlarge, usd_per_hour: 20}\n"))
    assert tuple(offer.zone for offer in book.offerings("trn2.48xlarge")) == prices.default_zones()


def test_own_prices_of_several_regions_are_refused(tmp_path: Path) -> None:
    text = "instance_type,usd_per_hour,zone\ng5.xlarge,1,eu-west-1a\ng6.xlarge,1,\n"
    with pytest.raises(InputError, match="prices of several regions: eu-west-1, us-east-1"):
        prices.load(_write(tmp_path / "mine.csv", text))


def test_an_empty_yaml_price_file_changes_nothing(tmp_path: Path) -> None:
    assert prices.load(_write(tmp_path / "mine.yaml", "# none yet\n")) == prices.load()


@pytest.mark.parametrize(
    ("row", "where", "message"),
    [
        ("g6e.12xlarg,7.5,,,", "2:instance_type", "did you mean g6e.12xlarge"),
        (",7.5,,,", "2:instance_type", "no instance type"),
        ("g5.xlarge,cheap,,,", "2:usd_per_hour", "'cheap' is not a price"),
        ("g5.xlarge,-1,,,", "2:usd_per_hour", "'-1' is not a price"),
        ("g5.xlarge,0,,,", "2:usd_per_hour", "'0' is not a price"),
        ("g5.xlarge,nan,,,", "2:usd_per_hour", "'nan' is not a price"),
        ("g5.xlarge,1e999,,,", "2:usd_per_hour", "'1e999' is not a price"),
        ("g5.xlarge,1e30,,,", "2:usd_per_hour", "'1e30' is not a price"),
        ("g5.xlarge,1e-9,,,", "2:usd_per_hour", "'1e-9' is not a price"),
        ("g5.xlarge,,,,", "2:usd_per_hour", "no price"),
        ("g5.xlarge,1,use1-az1,,", "2:zone", "'use1-az1' is not an availability zone"),
        ("g5.xlarge,1,,preemptible,", "2:capacity_type", "it is on-demand (the default), spot, owned or reserved"),
        ("g5.xlarge,1,,,yesterday", "2:as_of", "write it as YYYY-MM-DD"),
        ("g5.xlarge,1,,,,extra", "2", "more than 5 cells"),
    ],
)
def test_a_value_of_an_own_price_that_cannot_be_used_is_pointed_at(
    tmp_path: Path, row: str, where: str, message: str
) -> None:
    path = _write(tmp_path / "mine.csv", CSV + row + "\n")
    with pytest.raises(InputError) as caught:
        prices.load(path)
    assert [str(problem.where) for problem in caught.value.problems] == [f"{path}:{where}"]
    assert message in str(caught.value)


def test_every_bad_value_of_a_price_file_is_reported_at_once(tmp_path: Path) -> None:
    text = "- instance_type: g5.xlarg\n  usd_per_hour: x\n\n- instance_type: g5.xlarge\n  usd_per_hour: 1\n  zone:\n    - a\n"
    path = _write(tmp_path / "mine.yaml", text)
    with pytest.raises(InputError) as caught:
        prices.load(path)
    assert [(p.where.line, p.where.field) for p in caught.value.problems] == [
        (1, "instance_type"),
        (2, "usd_per_hour"),
        (6, "zone"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("mine.csv", "instance_type,usd\ng5.xlarge,1\n", "unknown column 'usd'"),
        ("mine.csv", "instance_type\ng5.xlarge\n", "usd_per_hour: column is missing"),
        ("mine.csv", "", "instance_type: column is missing"),
        ("mine.yaml", "instance_type: g5.xlarge\n", "expected a list of prices"),
        ("mine.yaml", "- g5.xlarge\n", "expected a mapping"),
        ("mine.yaml", "- {instance_type: [}\n", "not YAML"),
        ("mine.yaml", "- {instance_type: g5.xlarge, usd_per_hour: 1, zones: a}\n", "unknown column 'zones'"),
        ("mine.json", "[]", "give a .csv or .yaml file"),
    ],
)
def test_a_price_file_of_the_wrong_form_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        prices.load(_write(tmp_path / name, text))
    assert message in str(caught.value)


def test_a_price_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the price file"):
        prices.load(tmp_path / "none.csv")


@given(st.lists(st.tuples(st.sampled_from(["g5.xlarge", "p5.4xlarge"]), st.integers(1, 10**9)), max_size=5))
def test_the_last_own_price_of_a_type_wins(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int]]
) -> None:
    path = tmp_path_factory.mktemp("prices") / "mine.csv"
    body = "".join(f"{name},{micro / 1e6:.6f},,,\n" for name, micro in rows)
    book = prices.load(_write(path, CSV + body))
    expected = {name: prices.load().on_demand(name) for name in ("g5.xlarge", "p5.4xlarge")} | dict(rows)
    assert {name: book.on_demand(name) for name in expected} == expected


def test_a_reservation_has_what_node_classes_select_it_by(tmp_path: Path) -> None:
    header = "instance_type,usd_per_hour,capacity_type,zone,reservation,count,tags,owner,match"
    row = "p5.48xlarge,,reserved,us-east-1a,cr-1,4,team=ml; env=prod,111122223333,targeted"
    file = tmp_path / "mine.csv"
    file.write_text(f"{header}\n{row}\n")
    (one,) = prices.load(file).reservations
    assert (one.tags, one.owner, one.match) == ((("env", "prod"), ("team", "ml")), "111122223333", "targeted")
    wrong = row.replace("team=ml; env=prod", "team").replace("111122223333", "me").replace("targeted", "any")
    file.write_text(f"{header}\n{wrong}\n")
    with pytest.raises(InputError) as raised:
        prices.load(file)
    assert [one.where.field for one in raised.value.problems if one.where] == ["tags", "owner", "match"]


def test_a_reservation_is_counted_in_one_zone_and_has_no_price(tmp_path: Path) -> None:
    text = """instance_type,usd_per_hour,capacity_type,zone,reservation,count,ends
p5.48xlarge,,reserved,us-east-1a,cr-0a1,4,
p5.48xlarge,,reserved,us-east-1b,cr-0b2,2,2026-12-01T11:30:00Z
"""
    book = prices.load(_write(tmp_path / "mine.csv", text))
    assert [(one.id, one.instance_type, one.zone, one.count, one.ends_ns) for one in book.reservations] == [
        ("cr-0a1", "p5.48xlarge", "us-east-1a", 4, None),
        ("cr-0b2", "p5.48xlarge", "us-east-1b", 2, 1_796_124_600 * 10**9),
    ]
    assert book.by_type == prices.load().by_type


@pytest.mark.parametrize(
    ("row", "field", "message"),
    [
        ("p5.48xlarge,,reserved,,cr-1,4,", "zone", "a reservation without a zone"),
        ("p5.48xlarge,3,reserved,us-east-1a,cr-1,4,", "usd_per_hour", "a reservation has no price here"),
        ("p5.48xlarge,,reserved,us-east-1a,mine,4,", "reservation", "'mine' is not the id of one"),
        ("p5.48xlarge,,reserved,us-east-1a,cr-1,0,", "count", "'0' is not a number of instances"),
        ("p5.48xlarge,,reserved,us-east-1a,cr-1,4,soon", "ends", "'soon' is not a time"),
        ("p5.48xlarge,3,on-demand,us-east-1a,cr-1,,", "reservation", "reservation is of reservations"),
    ],
)
def test_a_row_of_a_reservation_that_cannot_be_used_is_pointed_at(
    tmp_path: Path, row: str, field: str, message: str
) -> None:
    header = "instance_type,usd_per_hour,capacity_type,zone,reservation,count,ends"
    with pytest.raises(InputError) as refused:
        prices.load(_write(tmp_path / "mine.csv", f"{header}\n{row}\n"))
    (problem,) = refused.value.problems
    assert problem.where is not None and (problem.where.line, problem.where.field) == (2, field)
    assert problem.message.startswith(message)
