"""Where the internal listener of a node is: voters, config, registrations, and leaders that were named."""

from __future__ import annotations

from penstock.broker.node.addresses import NodeAddresses
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.net.listener import Listener
from penstock.raft.messages import Endpoint, ReplicaKey, Voter
from penstock.raft.voters import VoterSet
from penstock.wire.apis.endpoints import NodeEndpoint
from penstock.wire.metadata_records import BrokerEndpoint, RegisterBrokerRecord

CONFIG = BrokerConfig(
    {
        "node.id": "1",
        "controller.quorum.voters": "1@one:1,2@two:2",
        "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
    }
)
INTERNAL = Listener("INTERNAL", "127.0.0.1", 0, "me.example", 9093)


def registered(node_id: int, listener: str, port: int) -> RegisterBrokerRecord:
    endpoint = BrokerEndpoint(name=listener, host="registered", port=port, security_protocol=0)
    return RegisterBrokerRecord(
        broker_id=node_id, incarnation_id=bytes(16), broker_epoch=1, end_points=[endpoint]
    )


def addresses(*voters: Voter, image: ClusterImage | None = None) -> NodeAddresses:
    return NodeAddresses(CONFIG, image or ClusterImage(), INTERNAL, lambda: VoterSet(voters))


def test_the_own_endpoint_is_the_advertised_one() -> None:
    found = addresses()
    assert found.own == (Endpoint("INTERNAL", "me.example", 9093),)
    assert found.endpoint_of(1) == found.own[0]


def test_a_node_without_an_internal_listener_has_no_endpoint() -> None:
    alone = NodeAddresses(CONFIG, ClusterImage(), None, lambda: VoterSet(()))
    assert alone.own == ()
    assert alone.endpoint_of(1) is None
    assert alone.endpoint_of(2) is None, "there is no listener name to give"


def test_the_endpoint_of_a_voter_comes_before_that_of_the_config() -> None:
    moved = Voter(ReplicaKey(2), (Endpoint("INTERNAL", "moved", 22),))
    assert addresses(moved).locate(2) == ("moved", 22)
    assert addresses(Voter(ReplicaKey(2), ())).locate(2) == ("two", 2)
    assert addresses(Voter(ReplicaKey(2), (Endpoint("INTERNAL", "", 0),))).locate(2) == ("two", 2)


def test_the_endpoint_of_a_broker_comes_from_its_registration() -> None:
    image = ClusterImage()
    image.apply(registered(7, "INTERNAL", 77), 1)
    image.apply(registered(8, "CLIENTS", 88), 2)
    found = addresses(image=image)
    assert found.endpoint_of(7) == Endpoint("INTERNAL", "registered", 77)
    assert found.locate(8) is None, "its registration has no internal listener"


def test_a_leader_that_was_named_in_a_response_is_known() -> None:
    found = addresses()
    assert found.locate(9) is None
    found.learn([NodeEndpoint(node_id=9, host="named", port=99)])
    assert found.locate(9) == ("named", 99)
    found.learn([NodeEndpoint(node_id=2, host="wrong", port=1)])
    assert found.locate(2) == ("two", 2), "the config comes before what a response has named"
