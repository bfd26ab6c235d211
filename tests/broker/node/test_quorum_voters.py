"""Voters change while the quorum works (KIP-853)."""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.wire.apis.add_raft_voter import ADD_RAFT_VOTER, AddRaftVoterRequest
from penstock.wire.apis.endpoints import Endpoint
from penstock.wire.apis.remove_raft_voter import REMOVE_RAFT_VOTER, RemoveRaftVoterRequest
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.topics import create


async def add_voter(nodes: Cluster, through: int, node: int) -> int:
    broker = nodes[node]
    assert broker.stages.listening.internal is not None
    listener = broker.stages.listening.internal.listener
    request = AddRaftVoterRequest(
        cluster_id=broker.stages.cluster.node.cluster_id,
        timeout_ms=5000,
        voter_id=node,
        voter_directory_id=broker.stages.cluster.node.key.directory_id,
        listeners=[Endpoint(name="INTERNAL", host=listener.advertised_host, port=listener.advertised_port)],
    )
    return (await nodes.call(through, ADD_RAFT_VOTER, request)).error_code


def voters(nodes: Cluster, node: int) -> list[int]:
    return [voter.key.id for voter in nodes[node].stages.cluster.node.quorum.state.voters]


def test_an_observer_becomes_a_voter_and_counts() -> None:
    async def main() -> None:
        async with cluster(2, observers=1) as nodes:
            controller = await nodes.settled()
            assert await add_voter(nodes, 3, 3) == ErrorCode.NONE
            for node in nodes.brokers:
                await eventually(lambda node=node: voters(nodes, node) == [1, 2, 3])
            assert await add_voter(nodes, 1, 3) == ErrorCode.DUPLICATE_VOTER
            await nodes.kill(controller.stages.config.node_id)
            await nodes.settled()
            assert await create(nodes, 3, "with-two-of-three") == ErrorCode.NONE

    run(main())


def test_a_voter_is_removed_even_if_it_leads() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            leader = (await nodes.settled()).stages.config.node_id
            request = RemoveRaftVoterRequest(
                voter_id=leader, voter_directory_id=nodes[leader].stages.cluster.node.key.directory_id
            )
            answer = await nodes.call(leader, REMOVE_RAFT_VOTER, request)
            assert answer.error_code == ErrorCode.NONE
            await eventually(lambda: all(leader not in voters(nodes, node) for node in nodes.brokers))
            await eventually(
                lambda: nodes.controller is not None and nodes.controller.stages.config.node_id != leader
            )
            await nodes.settled()
            assert await create(nodes, leader, "by-an-observer") == ErrorCode.NONE

    run(main())


def test_the_voters_in_the_log_outlive_a_restart() -> None:
    async def main() -> None:
        async with cluster(1, observers=1) as nodes:
            assert await add_voter(nodes, 1, 2) == ErrorCode.NONE
            await eventually(lambda: voters(nodes, 2) == [1, 2])
            await nodes.kill(1)
            await nodes.kill(2)
            await nodes.start()
            assert voters(nodes, 1) == voters(nodes, 2) == [1, 2]

    run(main())


def test_a_voter_with_a_new_address_announces_it() -> None:
    """Once the log names the voters it also says where they are: a new address has to get there (KIP-853)."""

    async def main() -> None:
        async with cluster(2, observers=1) as nodes:
            assert await add_voter(nodes, 1, 3) == ErrorCode.NONE
            node = 3
            await nodes.kill(node)
            await nodes.settled()
            port = nodes.new_port()
            listener = nodes.settings[node]["listeners"].split(",")[0]
            nodes.settings[node]["listeners"] = f"{listener},INTERNAL://127.0.0.1:{port}"
            await nodes.start(node)

            def known() -> set[int]:
                found = [
                    broker.stages.cluster.node.quorum.state.voters.get(node)
                    for broker in nodes.brokers.values()
                ]
                return {voter.endpoints[0].port for voter in found if voter is not None}

            await eventually(lambda: known() == {port})
            # Its vote is counted where it is now.
            await nodes.kill(next(each for each in (1, 2, 3) if each != node))
            await nodes.settled()
            assert await create(nodes, node, "with-two-of-three") == ErrorCode.NONE

    run(main())
