"""A follower that keeps up, on a connection to a real leader: what becomes of it when something changes."""

from __future__ import annotations

import gc
from typing import Any

from penstock.broker.replica.sessions import FollowedPartition, ReplicaSession
from penstock.model.errors import ErrorCode
from penstock.net.deferred import Deferred
from penstock.security.principal import Session
from penstock.wire.apis.fetch import FETCH, FetchResponse
from penstock.wire.messages import decode_response, encode_request
from tests.broker.authorization.cluster_action import BOB, CONFIG, allow_cluster_action, revoke
from tests.broker.fake_connections import fake_connection
from tests.broker.nodes import Cluster, cluster, run
from tests.broker.replication import TOPIC, make_topic, replica, stop_fetching
from tests.broker.requests import batch_of
from tests.wire.replica_requests import ReplicaRequest

LEADER, FOLLOWER = 1, 2


class Follower:
    """Broker 2 as broker 1 sees it, on one connection; it has everything up to `offset`."""

    def __init__(self, nodes: Cluster, offset: int = 0) -> None:
        self._nodes = nodes
        dispatcher = nodes[LEADER].serving.internal_dispatcher
        assert dispatcher is not None
        self._dispatcher = dispatcher
        self._connection = fake_connection(dispatcher, peer="follower")
        self.offset = offset
        self.session_id, self.epoch = 0, 0

    @property
    def session(self) -> ReplicaSession:
        sessions = self._nodes[LEADER].stages.replication.replicas.sessions
        return next(session for session in sessions if session.id == self.session_id)

    def call(self, *topics: str, forgotten: tuple[str, ...] = (), **changed: Any) -> Any:
        """Send the next fetch; returns the parts of a response, or a Deferred of them."""
        ids = {
            name: self._nodes[LEADER].stages.cluster.image.topics[name].id for name in (*topics, *forgotten)
        }
        last_epoch = 0 if self.offset else -1
        wanted = [(ids[name], 0, 0, self.offset, last_epoch, 0, 1 << 20) for name in topics]
        request = ReplicaRequest(
            *(500, 1, 1 << 20, self.session_id, self.epoch),
            *(
                FOLLOWER,
                self._nodes[FOLLOWER].stages.cluster.node.broker_epoch,
                wanted,
                [(ids[name], 0) for name in forgotten],
            ),
        )._replace(**changed)
        self.epoch += 1
        parts = encode_request(FETCH, FETCH.max_version, 7, "follower", request.message())
        frame = b"".join(map(bytes, parts))[4:]  # type: ignore[arg-type]
        return self._dispatcher.serve(self._connection, memoryview(frame))

    def hear(self, answer: Any) -> FetchResponse:
        if isinstance(answer, Deferred):
            answer = answer.value
        written = b"".join(bytes(part) for part in answer)
        response: FetchResponse = decode_response(FETCH, FETCH.max_version, memoryview(written)[4:])
        self.session_id = response.session_id
        return response

    def keep_up(self, *topics: str) -> Deferred[Any]:
        """Open a session, and fetch until a request is known by its bytes, and waits."""
        self.hear(self.call(*topics))
        self.call(topics[0])
        self.end_wait(self.session)
        waiting = self.call(topics[0])
        assert isinstance(waiting, Deferred)
        assert self.session.waiting is self._connection.memo
        return waiting

    def end_wait(self, session: ReplicaSession) -> None:
        """As a timer would."""
        if session.waiting is not None:
            session.waiting._finish()  # type: ignore[attr-defined]


def test_a_session_that_was_closed_is_not_fetched_in_any_more() -> None:
    """Its successor has another connection, as after one that ended without notice."""

    async def main() -> None:
        async with cluster(2) as nodes:
            await make_topic(nodes, LEADER, FOLLOWER)
            await stop_fetching(nodes[FOLLOWER])
            partition = replica(nodes[LEADER])
            partition.followers.clear()
            before, after = Follower(nodes), Follower(nodes)
            waiting = before.keep_up(TOPIC)
            closed = before.session
            after.hear(after.call(TOPIC, session_id=before.session_id))

            before.end_wait(closed)
            assert not before.hear(waiting).responses
            answer = before.hear(before.call(TOPIC))
            assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            assert [follower.session for follower in partition.followers] == [after.session]  # type: ignore[attr-defined]

    run(main())


def test_nothing_of_a_partition_that_was_forgotten_is_kept() -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            for name in ("kept", "gone"):
                await make_topic(nodes, LEADER, FOLLOWER, name=name)
            await stop_fetching(nodes[FOLLOWER])
            follower = Follower(nodes)
            follower.keep_up("gone", "kept")
            follower.call("kept", forgotten=("gone",))
            follower.call("kept")
            session = follower.session
            gc.collect()
            alive = [each for each in gc.get_objects() if isinstance(each, FollowedPartition)]
            assert [each for each in alive if each.session is session] == list(session.partitions.values())

    run(main())


def test_records_appended_during_a_committing_fetch_are_answered_at_once() -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await make_topic(nodes, LEADER, FOLLOWER)
            await stop_fetching(nodes[FOLLOWER])
            partition = replica(nodes[LEADER])
            assert partition.leadership is not None
            follower = Follower(nodes)
            waiting = follower.keep_up(TOPIC)
            partition.append(memoryview(bytearray(batch_of([b"a"]))))
            partition.leadership.when_committed(
                1, lambda _: partition.append(memoryview(bytearray(batch_of([b"b"])))) and None
            )
            follower.end_wait(follower.session)
            follower.hear(waiting)
            follower.offset = 1

            (reported,) = follower.hear(follower.call(TOPIC)).responses[0].partitions

            assert reported.records, "it waits for what is there"

    run(main())


def test_a_follower_that_repeats_its_fetch_loses_access_with_the_acl() -> None:
    async def main() -> None:
        async with cluster(2, config=CONFIG) as nodes:
            await make_topic(nodes, LEADER, FOLLOWER)
            await stop_fetching(nodes[FOLLOWER])
            await allow_cluster_action(nodes)
            follower = Follower(nodes)
            follower._connection.session = Session(BOB)
            follower.keep_up(TOPIC)
            follower.end_wait(follower.session)
            await revoke(nodes)
            response = follower.hear(follower.call(TOPIC))
            found = [p.error_code for topic in response.responses for p in topic.partitions]
            assert found == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]

    run(main())
