import pytest
import trio
from trio.testing import MockClock

from tandem.client.cluster_access import ClusterAccess
from tandem.console.accounts import Accounts, Surroundings
from tandem.console.errors import APIError
from tandem.console.target import Target
from tests.tandem.client.fake_broker import FakeNetwork
from tests.tandem.console.fake_cluster import ADDRESSES, FakeCluster


def accounts_of(cluster: FakeCluster, nursery: trio.Nursery) -> tuple[Accounts, FakeNetwork]:
    network = FakeNetwork(nursery, cluster.brokers)
    target = Target(ClusterAccess(ADDRESSES, signatures="any"), bool(cluster.secrets))
    around = Surroundings(target, cluster.records, lambda: 1, network.open_stream)
    return Accounts(around, nursery), network


async def test_an_account_is_open_while_somebody_uses_it(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        accounts, _ = accounts_of(FakeCluster(), nursery)
        account = await accounts.enter("", "")
        assert await accounts.enter("", "") is account
        with accounts.using(account):
            accounts.leave(account)
            accounts.leave(account)
            assert await account.check_keys()
        await trio.testing.wait_all_tasks_blocked()
        assert await accounts.enter("", "") is not account
        nursery.cancel_scope.cancel()


async def test_two_who_enter_at_once_have_one_that_is_open(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        accounts, _ = accounts_of(FakeCluster(), nursery)
        found = []

        async def enter() -> None:
            account = await accounts.enter("", "")
            assert await account.check_keys()
            found.append(account)

        async with trio.open_nursery() as both:
            both.start_soon(enter)
            both.start_soon(enter)
        assert found[0] is found[1]
        nursery.cancel_scope.cancel()


async def test_keys_are_the_users_own_in_every_request(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    cluster.secrets = {"shop": "secret-of-shop"}
    async with trio.open_nursery() as nursery:
        accounts, _ = accounts_of(cluster, nursery)
        good = await accounts.enter("shop", "secret-of-shop")
        bad = await accounts.enter("shop", "another")
        assert (await good.check_keys(), await bad.check_keys()) == (True, False)
        with pytest.raises(APIError) as caught:
            await good.check_cluster()
        assert caught.value.code == "forbidden"
        users = {
            request.ext_fields().get("AccessKey")
            for broker in cluster.brokers.values()
            for request in broker.requests
            if request.code != 1  # a number for seals is asked for before anybody is named
        }
        assert users <= {"shop", None}
        nursery.cancel_scope.cancel()


async def test_nobody_answers_and_nothing_is_shown_of_the_coordinator(
    autojump_clock: MockClock,
) -> None:
    cluster = FakeCluster()
    cluster.secrets = {"boss": "secret-of-boss"}
    cluster.looks_around = {"boss"}
    async with trio.open_nursery() as nursery:
        accounts, network = accounts_of(cluster, nursery)
        account = await accounts.enter("boss", "secret-of-boss")
        seen = await account.cluster.fresh()
        assert not isinstance(seen, APIError)
        assert seen.groups[0].in_sync == ["a", "b"]
        cluster.brokers.clear()
        await network.cut()
        await trio.sleep(1)
        seen = await account.cluster.fresh()
        assert not isinstance(seen, APIError)
        assert seen.groups[0].in_sync == []
        nursery.cancel_scope.cancel()


async def test_nobody_answers_and_who_never_might_sees_nothing(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    cluster.secrets = {"boss": "secret-of-boss", "shop": "secret-of-shop"}
    cluster.looks_around = {"boss"}
    async with trio.open_nursery() as nursery:
        accounts, network = accounts_of(cluster, nursery)
        boss = await accounts.enter("boss", "secret-of-boss")
        shop = await accounts.enter("shop", "secret-of-shop")
        await boss.check_cluster()
        cluster.brokers.clear()
        await network.cut()
        await boss.check_cluster()
        with pytest.raises(APIError) as caught:
            await shop.check_cluster()
        assert caught.value.code == "no_answer"
        seen = await shop.cluster.fresh()
        assert isinstance(seen, APIError)
        nursery.cancel_scope.cancel()
