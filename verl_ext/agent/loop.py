"""The ``bugfix`` agent loop: one repair session, token in, token out, on verl's ``AgentLoopBase``.

The prompt of every request is the ids sampled and observed so far in its segment; nothing is re-tokenised from text.
verl's continuous-token builder renders only what is appended (observation and the next assistant marker) and its tool
parser reads calls from sampled ids. Where a context manager shortens the history a new segment begins, which is a row
of its own. A session that infrastructure broke raises and leaves no row, so that it enters neither the loss nor its
group's statistics (verl pads the batch); every other end is data.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import ray
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register
from verl.experimental.agent_loop.tool_parser import ToolParser
from verl.tools.schemas import OpenAIFunctionToolSchema
from verl.utils.tokenizer.continuous_token import MergeResult

from verl_ext.agent.context import Context, Exchange, GoOn, Message, Move, Restart, summary
from verl_ext.agent.folding import manager
from verl_ext.agent.sandboxes import shared_sandbox
from verl_ext.agent.session import Segment, Session, action_of, charged, clean, ids_digest, with_hint
from verl_ext.config import data_files, parse
from verl_ext.gym.env import BugFixEnv
from verl_ext.gym.flags import flags
from verl_ext.gym.prompts import tool_schemas
from verl_ext.gym.tasks import task_from_json
from verl_ext.legacy import entry_point
from verl_ext.simulate.workload import distribution
from verl_ext.types import Action, InfrastructureError, Observation, StopReason, Task

logger = logging.getLogger(__name__)


def bounded(text: str, limit: int) -> str:
    """``text`` in at most ``limit`` characters: the middle goes, since head and tail say what failed."""
    if len(text) <= limit:
        return text
    mark = "\n[...]\n"
    head = max(limit - len(mark), 0) // 2
    tail = max(limit - len(mark) - head, 0)
    return (text[:head] + mark + text[len(text) - tail :])[:limit]


@register("bugfix")
class BugFixAgentLoop(AgentLoopBase):
    """Repairs one task over many turns; see the module docstring. Configured by :class:`verl_ext.config.Config`."""

    def __init__(self, *args: Any, tools: Any = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        del tools  # the environment brings its own
        self.ours = parse(self.config)
        self.private = [file for files in data_files(self.config).values() for file in files]
        multi_turn = self.rollout_config.multi_turn
        self.tool_delay = distribution(self.ours.tool_delay)
        self.max_turns: int = multi_turn.max_assistant_turns
        self.observation_limit: int = multi_turn.max_tool_response_length
        self.parser = ToolParser.get_tool_parser(multi_turn.format, self.tokenizer)
        self.schemas = [*tool_schemas(self.ours.tools), *manager(self.ours.context.manager).schemas]
        self.parser_schemas = [OpenAIFunctionToolSchema.model_validate(schema) for schema in self.schemas]
        self.response_length: int = self.rollout_config.response_length
        # One token short: verl's server refuses a prompt that leaves no room for a token.
        self.limit = (self.rollout_config.max_model_len or self.rollout_config.prompt_length + self.response_length) - 1

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput] | AgentLoopOutput:
        """Run one session.

        Args:
            sampling_params: verl's, e.g. ``temperature``, ``logprobs``.
            **kwargs: The data set's fields; ``raw_prompt`` (messages) and ``extra_info.task`` (task as JSON) are read.

        Returns:
            The session's rows, one a segment; none for a truncated session that ``truncated_in_baseline: false``
            leaves out. In verl's older entry points, which know one row a session, that row itself.

        Raises:
            InfrastructureError: Sandbox or server failed: no row, so no loss and no part in the group's statistics.
        """
        task = task_from_json(kwargs["extra_info"]["task"])
        temperature = sampling_params["temperature"] * self.ours.temperature_factor
        sampling_params = {**sampling_params, "temperature": temperature}
        settings = self.ours.context
        context = manager(settings.manager)(settings, list(task.sources))
        head = with_hint([dict(message) for message in kwargs["raw_prompt"]], context.hint[self.ours.tools])
        prompt_ids = await self.ct_build_initial_tokens(head, tools=self.schemas)
        budget = settings.of_group(f"{task.task_id}/{kwargs.get('global_steps', '')}", self.limit + 1)
        session = Session([Segment(prompt_ids, list(head))], min(budget, self.limit))
        try:
            # Opened once a process, which no session's time is charged with; but it may hang as well.
            async with asyncio.timeout(self.ours.wall_clock_s) as clock:
                sandbox = await shared_sandbox(self.ours.sandbox)
            async with asyncio.timeout(self.ours.wall_clock_s) as clock:
                env = BugFixEnv(task, sandbox, tools=self.ours.tools, private=self.private)
                await env.reset()
                session.stop = await self._converse(session, env, context, head, sampling_params)
        except InfrastructureError as error:
            raise self._left_out(StopReason.SANDBOX_ERROR, task.task_id, error) from None
        except ray.exceptions.RayError as error:
            raise self._left_out(StopReason.SERVER_ERROR, task.task_id, error) from None
        except TimeoutError:
            if not clock.expired():  # somebody else's time-out
                raise
            session.stop = StopReason.WALL_CLOCK
        if session.stop is StopReason.ABORTED or not session.turns:
            raise self._left_out(session.stop, task.task_id, "no turn was finished")
        masked = session.stop.truncated and self.ours.truncated == "mask"
        rows = [] if masked and not self.ours.truncated_in_baseline else self._rows(session, task, masked)
        return rows[0] if entry_point(self.config) else rows

    async def _converse(
        self,
        session: Session,
        env: BugFixEnv,
        context: Context,
        head: list[Message],
        sampling_params: dict[str, Any],
    ) -> StopReason:
        request_id = uuid4().hex  # one id a session: verl routes it to the server that holds its prefix
        while True:
            segment = session.segment
            space = self._space(session)
            if space <= 0:
                return self._out_of_room(session)
            space = min(space, self.ours.max_turn_tokens or space)
            start, began = len(segment.mask), time.monotonic()
            output = await self.server_manager.generate(
                request_id=request_id,
                prompt_ids=segment.ids,
                sampling_params={
                    **sampling_params,
                    "max_tokens": space,
                    "stop_token_ids": list(self.parser.stop_token_ids) or None,
                },
            )
            session.generate_s += time.monotonic() - began
            if output.stop_reason == "aborted" or not output.token_ids:
                return StopReason.ABORTED
            sampled = list(output.token_ids)
            self._append_sampled(segment, sampled, output.log_probs)
            content, calls = await self.parser.extract_tool_calls(sampled, self.parser_schemas)
            call = calls[0] if calls else None
            action = action_of(call.name if call else None, call.arguments if call else None)
            segment.messages.append({"role": "assistant", "content": content})
            segment.calls[len(session.turns)] = len(segment.messages), len(segment.ids)

            potential, before = env.potential, env.sources
            reply = context.act(action)
            if reply is None:
                observation = await self._step(env, action)
            else:
                observation = Observation(clean(reply.text), False, env.state, potential, reply.valid, reply.redundant)
            turn = Exchange(
                index=len(session.turns),
                tool=action.tool,
                valid=observation.valid,
                call=clean(self.tokenizer.decode(sampled, skip_special_tokens=True)),
                answer=bounded(observation.text, self.observation_limit),
                summary=summary(action, observation, env.public),
                changed=tuple(path for path, text in env.sources.items() if before.get(path) != text),
            )
            charges = charged(self.ours.context.charges, context, turn, segment, session.budget)
            versions = (output.extra_fields.get(f"{end}_global_steps") for end in ("min", "max"))
            session.add_turn(
                start, action, observation, potential, env.sources, charges, tuple(v for v in versions if v is not None)
            )
            if observation.done:
                return StopReason.SUBMITTED
            if len(session.turns) >= self.max_turns:
                return StopReason.MAX_TURNS
            if session.invalid_run >= self.ours.max_invalid_calls:
                return StopReason.INVALID_CALLS
            if len(sampled) >= space:
                return self._out_of_room(session)
            if stop := self._go_on(session, head, context.move(turn, LoopRoom(self, session, head))):
                return stop
            if session.segment is not segment:
                env.forget()

    async def _step(self, env: BugFixEnv, action: Action) -> Observation:
        observation = await env.step(action)
        if not (delay := self.tool_delay.draw(random)):
            return observation
        await asyncio.sleep(delay)
        return replace(observation, seconds=observation.seconds + delay)

    def _go_on(self, session: Session, head: list[Message], move: Move | None) -> StopReason | None:
        """Do what the context manager decided; why the session ends when that cannot be."""
        segment, builder = session.segment, self.continuous_token_builder
        if move is None:
            return self._out_of_room(session)
        if isinstance(move, GoOn):
            merged, updated = self.appended(segment, move.answer)
            segment.mask, segment.log_probs = builder.align_response_metadata(merged, segment.mask, segment.log_probs)
            segment.ids, segment.messages = list(merged.token_ids), updated
            return None
        if len(session.segments) >= self.ours.context.max_segments:
            return StopReason.FOLD_LIMIT
        if isinstance(move, Restart):
            messages = [*head, *move.messages]
            ids = builder.build_initial_tokens(messages, tools=self.schemas)
        else:  # cut back to a call: the ids up to there as they were sampled
            count, tokens = segment.calls[move.turn]
            kept = segment.messages[:count]
            messages = [*kept, {"role": "tool", "content": bounded(move.answer, self.observation_limit)}]
            ids = builder.merge_context_tokens(kept, messages, segment.ids[:tokens], tools=self.schemas).token_ids
        session.segments.append(Segment(list(ids), messages))
        return None if self._space(session) >= self.reserve(session) else StopReason.CONTEXT_OVERFLOW

    def reserve(self, session: Session) -> int:
        """Tokens to keep for the next message. Where the history can be shortened, a whole one."""
        if self.ours.context.manager == "none":
            return 1
        return self.ours.max_turn_tokens or session.budget // 8

    def appended(self, segment: Segment, answer: str) -> tuple[MergeResult, list[Message]]:
        """The context with ``answer`` to its last call: ids and messages."""
        # Straight from the builder: ``ct_merge_*`` hand each of these millisecond calls to a thread.
        updated = [*segment.messages, {"role": "tool", "content": answer}]
        merged = self.continuous_token_builder.merge_context_tokens(
            segment.messages, updated, segment.ids, tools=self.schemas
        )
        return merged, updated

    def _append_sampled(self, segment: Segment, token_ids: list[int], log_probs: list[float] | None) -> None:
        builder = self.continuous_token_builder
        merged = builder.merge_assistant_tokens(segment.ids, token_ids)
        segment.mask, segment.log_probs = builder.align_response_metadata(
            merged, segment.mask, segment.log_probs, assistant_logprobs=list(log_probs or [])
        )
        segment.ids = list(merged.token_ids)
        segment.sampled.append(ids_digest(segment.ids))

    def _space(self, session: Session) -> int:
        segment = session.segment
        return min(self.response_length - len(segment.mask), session.budget - len(segment.ids))

    def _out_of_room(self, session: Session) -> StopReason:
        """Which limit ended it: that of a context, or that of a response."""
        room = session.budget - len(session.segment.prompt_ids)
        return StopReason.CONTEXT_OVERFLOW if room < self.response_length else StopReason.RESPONSE_BUDGET

    def _left_out(self, stop: StopReason | None, task_id: str, cause: object) -> InfrastructureError:
        """What to raise: verl then takes the group as failed, trains on its other sessions and pads the batch."""
        first = next(iter(str(cause).splitlines()), type(cause).__name__)  # Ray's go on for a page
        text = f"session of task {task_id} left out of training: {stop} ({first})"
        logger.error(text)
        return InfrastructureError(text)

    def _rows(self, session: Session, task: Task, masked: bool) -> list[AgentLoopOutput]:
        """One row a segment, in order; ``masked`` keeps the session's tokens out of the loss."""
        final = {path: session.sources[path] for path in task.editable if path in session.sources}
        whole = {
            "final_sources": final,
            "flags": sorted(flags(task.sources, final)),
            "public_share": session.public_share,
        }
        kept = [segment for segment in session.segments if segment.turns]
        rows = []
        for segment, record in zip(kept, session.records(), strict=True):
            # The response ends with the last turn's tokens: a trailing observation would train nothing.
            end = segment.turns[-1].end
            versions = [version for turn in segment.turns for version in turn.versions]
            last = segment is kept[-1]  # verl sums seconds over rows
            rows.append(
                AgentLoopOutput(
                    prompt_ids=segment.prompt_ids,
                    response_ids=segment.ids[len(segment.prompt_ids) :][:end],
                    response_mask=[0] * end if masked else segment.mask[:end],
                    response_logprobs=segment.log_probs[:end],
                    num_turns=2 * len(segment.turns),
                    metrics={
                        "generate_sequences": session.generate_s if last else 0.0,
                        "tool_calls": session.sandbox_s if last else 0.0,
                    },
                    extra_fields={
                        "min_global_steps": min(versions, default=None),
                        "max_global_steps": max(versions, default=None),
                        "session": record,
                        **whole,
                    },
                )
            )
        return rows


@dataclass
class LoopRoom:
    """:class:`~verl_ext.agent.context.Room` of a running session."""

    loop: BugFixAgentLoop
    session: Session
    head: list[Message]

    @property
    def budget(self) -> int:
        return self.session.budget

    @property
    def reserve(self) -> int:
        return self.loop.reserve(self.session)

    def left(self, answer: str) -> int:
        segment = self.session.segment
        ids = self.loop.appended(segment, answer)[0].token_ids
        used = len(ids) - len(segment.prompt_ids)
        return min(self.budget - len(ids), self.loop.response_length - used)

    def size(self, messages: Sequence[Message]) -> int:
        builder = self.loop.continuous_token_builder
        return len(builder.build_initial_tokens([*self.head, *messages], tools=self.loop.schemas))

    def grown(self, turn: int) -> int:
        segment = self.session.segment
        return len(segment.ids) - segment.calls[turn][1]
