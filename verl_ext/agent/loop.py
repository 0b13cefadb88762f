"""The ``bugfix`` agent loop: one repair session, token in, token out, on verl's ``AgentLoopBase``.

The prompt of every request is the ids sampled and observed so far; nothing is re-tokenised from text. verl's
continuous-token builder renders only what is appended (observation and the next assistant marker) and its tool parser
reads calls from sampled ids. A session that infrastructure broke raises and leaves no row, so that it enters neither
the loss nor its group's statistics (verl pads the batch); every other end is data.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any
from uuid import uuid4

import ray
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register
from verl.experimental.agent_loop.tool_parser import ToolParser
from verl.tools.schemas import OpenAIFunctionToolSchema

from verl_ext.agent.sandboxes import shared_sandbox
from verl_ext.agent.session import Session, action_of, ids_digest
from verl_ext.config import data_files, parse
from verl_ext.gym.env import BugFixEnv
from verl_ext.gym.flags import flags
from verl_ext.gym.prompts import tool_schemas
from verl_ext.gym.tasks import task_from_json
from verl_ext.types import InfrastructureError, StopReason, Task

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
        self.max_turns: int = multi_turn.max_assistant_turns
        self.observation_limit: int = multi_turn.max_tool_response_length
        self.parser = ToolParser.get_tool_parser(multi_turn.format, self.tokenizer)
        self.schemas = tool_schemas(self.ours.tools)
        self.parser_schemas = [OpenAIFunctionToolSchema.model_validate(schema) for schema in self.schemas]
        self.response_length: int = self.rollout_config.response_length
        # One token short: verl's server refuses a prompt that leaves no room for a token.
        self.context = (
            self.rollout_config.max_model_len or self.rollout_config.prompt_length + self.response_length
        ) - 1

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput | list[AgentLoopOutput]:
        """Run one session.

        Args:
            sampling_params: verl's, e.g. ``temperature``, ``logprobs``.
            **kwargs: The data set's fields; ``raw_prompt`` (messages) and ``extra_info.task`` (task as JSON) are read.

        Returns:
            The session's row; an empty list for a truncated session that ``truncated_in_baseline: false`` leaves out.

        Raises:
            InfrastructureError: Sandbox or server failed: no row, so no loss and no part in the group's statistics.
        """
        task = task_from_json(kwargs["extra_info"]["task"])
        messages = [dict(message) for message in kwargs["raw_prompt"]]
        prompt_ids = await self.ct_build_initial_tokens(messages, tools=self.schemas)
        session = Session(prompt_ids=prompt_ids, ids=list(prompt_ids))
        versions: list[int] = []
        try:
            sandbox = await shared_sandbox(self.ours.sandbox)
            async with asyncio.timeout(self.ours.wall_clock_s) as clock:
                env = BugFixEnv(task, sandbox, tools=self.ours.tools, private=self.private)
                await env.reset()
                session.stop = await self._converse(session, env, messages, sampling_params, versions)
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
        mask = session.mask
        if session.stop.truncated and self.ours.truncated == "mask":
            if not self.ours.truncated_in_baseline:
                return []
            mask = [0] * len(mask)
        return self._row(session, task, mask, versions)

    async def _converse(
        self,
        session: Session,
        env: BugFixEnv,
        messages: list[dict[str, Any]],
        sampling_params: dict[str, Any],
        versions: list[int],
    ) -> StopReason:
        request_id = uuid4().hex  # one id a session: verl routes it to the server that holds its prefix
        while True:
            room = min(self.response_length - len(session.mask), self.context - len(session.ids))
            if room <= 0:
                return self._out_of_room(session)
            room = min(room, self.ours.max_turn_tokens or room)
            start, began = len(session.mask), time.monotonic()
            output = await self.server_manager.generate(
                request_id=request_id,
                prompt_ids=session.ids,
                sampling_params={
                    **sampling_params,
                    "max_tokens": room,
                    "stop_token_ids": list(self.parser.stop_token_ids) or None,
                },
            )
            session.generate_s += time.monotonic() - began
            if output.stop_reason == "aborted" or not output.token_ids:
                return StopReason.ABORTED
            versions += [
                v for v in (output.extra_fields.get(f"{end}_global_steps") for end in ("min", "max")) if v is not None
            ]
            self._append_sampled(session, list(output.token_ids), output.log_probs)

            content, calls = await self.parser.extract_tool_calls(list(output.token_ids), self.parser_schemas)
            call = calls[0] if calls else None
            action = action_of(call.name if call else None, call.arguments if call else None)
            potential = env.potential
            observation = await env.step(action)
            session.add_turn(start, action, observation, potential, env.sources)
            if observation.done:
                return StopReason.SUBMITTED
            if len(session.turns) >= self.max_turns:
                return StopReason.MAX_TURNS
            if session.invalid_run >= self.ours.max_invalid_calls:
                return StopReason.INVALID_CALLS
            if len(output.token_ids) >= room:
                return self._out_of_room(session)
            messages.append({"role": "assistant", "content": content})
            if not self._append_observation(session, messages, bounded(observation.text, self.observation_limit)):
                return self._out_of_room(session)

    def _append_sampled(self, session: Session, token_ids: list[int], log_probs: list[float] | None) -> None:
        builder = self.continuous_token_builder
        merged = builder.merge_assistant_tokens(session.ids, token_ids)
        session.mask, session.log_probs = builder.align_response_metadata(
            merged, session.mask, session.log_probs, assistant_logprobs=list(log_probs or [])
        )
        session.ids = list(merged.token_ids)
        session.sampled.append(ids_digest(session.ids))

    def _append_observation(self, session: Session, messages: list[dict[str, Any]], text: str) -> bool:
        """Append what the environment said; False, with nothing appended, when it would leave no room to answer."""
        # Straight from the builder: ``ct_merge_*`` hand each of these millisecond calls to a thread.
        builder = self.continuous_token_builder
        updated = [*messages, {"role": "tool", "content": text}]
        merged = builder.merge_context_tokens(messages, updated, session.ids, tools=self.schemas)
        mask, log_probs = builder.align_response_metadata(merged, session.mask, session.log_probs)
        if len(mask) >= self.response_length or len(merged.token_ids) >= self.context:
            return False
        messages[:] = updated
        session.ids, session.mask, session.log_probs = list(merged.token_ids), mask, log_probs
        return True

    def _out_of_room(self, session: Session) -> StopReason:
        if len(session.ids) >= self.context and len(session.mask) < self.response_length:
            return StopReason.CONTEXT_OVERFLOW
        return StopReason.RESPONSE_BUDGET

    def _left_out(self, stop: StopReason | None, task_id: str, cause: object) -> InfrastructureError:
        """What to raise: verl then takes the group as failed, trains on its other sessions and pads the batch."""
        text = f"session of task {task_id} left out of training: {stop} ({cause})"
        logger.error(text)
        return InfrastructureError(text)

    def _row(self, session: Session, task: Task, mask: list[int], versions: list[int]) -> AgentLoopOutput:
        # The response ends with the last turn's tokens: a trailing observation would train nothing.
        end = session.turns[-1].end
        final = {path: session.sources[path] for path in task.editable if path in session.sources}
        return AgentLoopOutput(
            prompt_ids=session.prompt_ids,
            response_ids=session.ids[len(session.prompt_ids) :][:end],
            response_mask=mask[:end],
            response_logprobs=session.log_probs[:end],
            num_turns=2 * len(session.turns),
            metrics={"generate_sequences": session.generate_s, "tool_calls": session.sandbox_s},
            extra_fields={
                "min_global_steps": min(versions, default=None),
                "max_global_steps": max(versions, default=None),
                "session": session.record(),
                "final_sources": final,
                "flags": sorted(flags(task.sources, final)),
                "public_share": session.public_share,
            },
        )
