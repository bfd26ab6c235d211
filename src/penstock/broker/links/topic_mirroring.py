"""Compares the topics of a link with those of its source: new topics, added partitions, configs.

One broker of the cluster does this for each link. All of it may be done twice.
"""

from __future__ import annotations

from penstock.broker.base.logs import get_logger
from penstock.broker.links.changes import LinkChanges
from penstock.broker.links.source_cluster import SourceCluster, SourceTopic
from penstock.linking.definition import LinkDefinition, mirrored_configs
from penstock.metadata.image import ClusterImage
from penstock.model.config.mirrored_topics import MirroredTopic, MirrorState
from penstock.model.errors import ApiError, PolicyViolation, TopicAlreadyExists

__all__ = ["LINK_CONFIG", "TopicMirroring"]

log = get_logger("links")
#: the config of a mirrored topic
LINK_CONFIG = "penstock.link"


class TopicMirroring:
    """The topics of one link."""

    def __init__(self, image: ClusterImage, changes: LinkChanges) -> None:
        self._image = image
        self._changes = changes
        #: by topic: what stands in the way of its mirror
        self.problems: dict[str, str] = {}
        #: the configs of each topic when they were last compared
        self._configs: dict[str, dict[str, str]] = {}

    async def compare(self, definition: LinkDefinition, source: SourceCluster) -> None:
        """Create and change topics. The first error of each topic is kept in `problems`."""
        wanted = [topic for name, topic in sorted(source.topics.items()) if definition.mirrors(name)]
        configs = await source.configs([topic.name for topic in wanted])
        problems: dict[str, str] = {}
        for topic in wanted:
            name = definition.local_name(topic.name)
            try:
                await self._compare(definition, source, topic, name, configs.get(topic.name))
            except ApiError as e:
                problems[name] = str(e) or e.code.name
            if name in problems and self.problems.get(name) != problems[name]:
                log.warning("link_topic_refused", link=definition.name, topic=name, error=problems[name])
        self.problems = problems

    async def _compare(
        self,
        definition: LinkDefinition,
        source: SourceCluster,
        topic: SourceTopic,
        name: str,
        configs: dict[str, str] | None,
    ) -> None:
        there = _parsed((configs or {}).get(LINK_CONFIG))
        if definition.prefix and there is not None and not there.is_source:
            # Another link made it: with prefixes in both directions, its records would come back.
            return
        here = self._image.topics.get(name)
        if here is None:
            await self._create(definition, topic, name, configs)
            return
        own = self._image.topic_configs(name)
        mirrored = _parsed(own.get(LINK_CONFIG))
        if mirrored is None or mirrored.state is MirrorState.LIFTED:
            raise PolicyViolation(f"topic {name} exists, and is not mirrored")
        if mirrored.link != definition.name:
            raise PolicyViolation(f"topic {name} is mirrored by link {mirrored.link}")
        if mirrored.state is MirrorState.RETURNING:
            return
        if mirrored.source_id != topic.topic_id:
            raise PolicyViolation(
                f"topic {topic.name} was created again at the source, {name} has the old one"
            )
        if mirrored.state is MirrorState.FENCING:
            await self._fence(source, topic, name, mirrored, there)
        is_mirrored = mirrored.state is MirrorState.MIRRORING
        if there is not None and (is_mirrored or mirrored.lifts_fence):
            await self._lift(source, topic, name, mirrored, there)
        if not is_mirrored:
            return
        if len(here.partitions) < len(topic.partitions):
            await self._changes.grow_topic(name, len(topic.partitions))
        if configs is not None:
            await self._compare_configs(name, mirrored_configs(configs), own)

    async def _fence(
        self,
        source: SourceCluster,
        topic: SourceTopic,
        name: str,
        mirrored: MirroredTopic,
        there: MirroredTopic | None,
    ) -> None:
        """Have the source refuse records, and promote the topic once all brokers there know that.

        `there` is the state of the topic at the source now.
        """
        state = self._of_source(name, mirrored, MirrorState.FENCED)
        if there is not None and there.is_read_only and not _is_of(state, there):
            raise PolicyViolation(
                f"the source cannot be fenced: its topic {topic.name} takes no records already ({there})"
            )
        is_fenced = await source.set_state(topic.name, LINK_CONFIG, str(state))
        # A command may have ended the promotion meanwhile.
        if is_fenced and self._image.topic_configs(name).get(LINK_CONFIG) == str(mirrored):
            promoting = mirrored._replace(state=MirrorState.PROMOTING)
            await self._changes.alter_topic(name, {LINK_CONFIG: str(promoting)})
            log.info("link_source_fenced", topic=name)

    async def _lift(
        self,
        source: SourceCluster,
        topic: SourceTopic,
        name: str,
        mirrored: MirroredTopic,
        there: MirroredTopic,
    ) -> None:
        """Have the source take records again that a promotion has fenced: it was given up.

        Also after the return of the topic: no copy would take records; and after a promotion without a fence:
        the request of the former one may come late. The fence of a promotion that this broker has not heard
        of stays.
        """
        state = self._of_source(name, mirrored, MirrorState.LIFTED)
        if there.state is not MirrorState.FENCED or not _is_of(state, there):
            return
        if there.fence > mirrored.fence:
            raise PolicyViolation(
                f"topic {topic.name} takes no records at the source, because of promotion {there.fence}, "
                f"which is not known here: remove {LINK_CONFIG} from the topic there"
            )
        await source.set_state(topic.name, LINK_CONFIG, str(state))
        log.warning("link_fence_lifted", topic=name)

    def _of_source(self, name: str, mirrored: MirroredTopic, state: MirrorState) -> MirroredTopic:
        """The state that the mirror of a topic gives the topic at the source."""
        return MirroredTopic(mirrored.link, state, self._image.topics[name].id, name, fence=mirrored.fence)

    async def _create(
        self, definition: LinkDefinition, topic: SourceTopic, name: str, configs: dict[str, str] | None
    ) -> None:
        if configs is None:
            raise PolicyViolation(f"the configs of {topic.name} cannot be read: it may be compacted")
        taken = mirrored_configs(configs)
        mirrored = MirroredTopic(definition.name, MirrorState.MIRRORING, topic.topic_id, topic.name)
        try:
            configs = {**taken, LINK_CONFIG: str(mirrored)}
            await self._changes.create_topic(name, len(topic.partitions), configs)
        except TopicAlreadyExists:
            return
        self._configs[name] = taken
        log.info("link_topic_created", link=definition.name, topic=name, partitions=len(topic.partitions))

    async def _compare_configs(self, name: str, wanted: dict[str, str], own: dict[str, str]) -> None:
        """Set what differs. What the source no longer sets is removed if this broker has seen it there."""
        before = self._configs.get(name, {})
        changes: dict[str, str | None] = {key: text for key, text in wanted.items() if own.get(key) != text}
        changes.update((key, None) for key in before if key not in wanted and key in own)
        if changes:
            await self._changes.alter_topic(name, changes)
            log.info("link_configs_changed", topic=name, configs=sorted(changes))
        self._configs[name] = wanted


def _parsed(text: str | None) -> MirroredTopic | None:
    return MirroredTopic.parse(text) if text else None


def _is_of(state: MirroredTopic, there: MirroredTopic) -> bool:
    """Whether the same mirror has set the state that the topic has at the source."""
    return there.is_source and (there.link, there.source_id) == (state.link, state.source_id)
