"""What a trainer of ours does when something breaks: it ends with a line and a checkpoint, and loses no prompt.

A mixin between :class:`verl_ext.trainer.mixin.SessionTrainerMixin`, which reads the settings, and a verl V1 trainer.
No actor is started again: a rollout server would come back with other weights and outside the group that weights are
sent in, and with an agent-loop worker the sessions in its memory are gone. A run that goes on from a checkpoint issues
the prompts again that were under way.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import transfer_queue as tq

from verl_ext.config import Config
from verl_ext.trainer import saving
from verl_ext.trainer.watch import RunEnded, Stall, Watch, stalled

logger = logging.getLogger(__name__)

TRAINER = "trainer worker"
ANSWER_S = 5.0
"""How long actors may take to answer once the loop is broken."""
READY_S = 60.0
"""And how long the trainer's workers may take to be free for a save: one that sends weights to the dead may hang."""
SUSPECT_S = 1.0
"""And how long when a group has failed, which most often is no death."""


class _Broken(RuntimeError):
    """Raised out of a poll to leave verl's loop."""


class _State:
    """A data loader's state as it was."""

    def __init__(self, state: dict[str, Any]):
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return self.state


class FaultMixin:
    """See the module docstring."""

    ours: Config

    def __init__(self, config: Any):
        super().__init__(config=config)
        self._watch: Watch | None = None
        self._stall = Stall(self.ours.stall_s and self.ours.stall_s + self.ours.wall_clock_s, 60.0)
        self._next_look = 0.0
        self._failed: set[str] = set()
        self._finished_step = 0
        self._loader_state: dict[str, Any] | None = None
        self._handed_out = 0
        self._saved: list[int] = []
        self._unsaved: str | None = None
        # Every poll, whatever comes of it, begins with this; a wait only follows when nothing was evicted.
        inner = self.replay_buffer._sync_metadata_from_transfer_queue

        def sync() -> None:
            inner()
            self._look()

        self.replay_buffer._sync_metadata_from_transfer_queue = sync

    # ------------------------------ is everybody alive ------------------------------

    def _actors(self) -> Iterator[tuple[str, Any]]:
        """Those whose death would keep the trainer waiting, and the trainer's own."""
        for group in ("actor_rollout_wg", "ref_policy_wg", "critic_wg"):
            for worker in getattr(getattr(self, group, None), "workers", ()):
                yield TRAINER, worker
        for manager in self._rollout_server_managers():
            for replica in manager.get_replicas():
                yield from (("rollout server", server) for server in replica.servers)
                yield from (("rollout worker", worker) for worker in replica.workers)
        loops = getattr(self.agent_loop_manager, "agent_loop_workers", ())  # a user's manager may have none
        yield from (("agent-loop worker", worker) for worker in loops)
        yield from (("reward worker", worker) for worker in self.get_reward_handles() or ())

    def _look(self) -> None:
        if self._watch is None:
            return
        buffer = self.replay_buffer
        failed = {uid for uids in buffer.failure_keys.values() for uid in uids}
        # In the asynchronous modes each is replaced at once: without a server prompt after prompt would be used up.
        new, self._failed = failed - self._failed, failed
        if new and self._watch.ask(SUSPECT_S):
            raise _Broken
        if (now := time.monotonic()) < self._next_look:
            return
        self._next_look = now + self.ours.watch_s
        if self._watch.look():
            raise _Broken
        ended = {key for rows in buffer.partitions.values() for key in rows}
        ended |= {uid for uids in buffer.finished_keys.values() for uid in uids}
        if not self._stall.look(ended):
            return
        waiting = [
            (uid, status, buffer.prompt_global_steps[partition][uid])
            for status, keys in (("pending", buffer.pending_keys), ("running", buffer.running_keys))
            for partition, uids in keys.items()
            for uid in sorted(uids)
        ]
        raise _Broken(stalled(self._stall.waited, waiting, len(failed)))

    def fit(self, agent_loop_manager: Any) -> None:
        """verl's loop.

        Raises:
            RunEnded: Somebody died, nothing finished for too long, or the last checkpoint could not be written.
        """
        self.agent_loop_manager = agent_loop_manager
        if self.ours.watch_s:
            self._watch = Watch(self._actors())
        try:
            super().fit(agent_loop_manager)
        except RunEnded:
            raise
        except Exception as error:
            # Whatever the loop stumbled over first, e.g. a call of an actor that had just died: ask who is dead.
            dead = self._watch.ask(ANSWER_S) if self._watch else []
            if not dead and not isinstance(error, _Broken):
                raise
            what = "; ".join(map(str, dead)) or str(error)
            watch, self._watch = self._watch, None
            able = not any(one.kind == TRAINER for one in dead) and not watch.busy(TRAINER, READY_S)
            kept = self._keep(able)
            raise RunEnded(f"{what}; {kept}") from None
        if self._unsaved:
            raise RunEnded(f"{self._unsaved}; {self._go_on()}")

    # ------------------------------ checkpoints ------------------------------

    @property
    def _root(self) -> Path:
        return Path(os.path.abspath(self.config.trainer.default_local_dir))

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> Any:
        self._finished_step = self.global_steps - 1
        if self.trainer_mode == "sync" and self.config.trainer.save_freq > 0:
            # verl keeps prompts under way in the asynchronous modes only; here a step begun is begun again.
            self._loader_state = self.train_dataloader.state_dict()
        batch = super().step(metrics, timing_raw)
        self._finished_step, self._loader_state = self.global_steps, None
        return batch

    def _keep(self, able: bool) -> str:
        """Save the last finished step if it is not; says what a run would go on from."""
        step = self._finished_step
        due = self.config.trainer.save_freq > 0 and step > 0 and step not in self._saved[-1:]
        if due and not able:
            self._unsaved = f"step {step} cannot be saved: a {TRAINER} is dead or does not answer"
        elif due:
            now, loader = self.global_steps, self.train_dataloader
            self.global_steps = step
            if self._loader_state is not None:
                self.train_dataloader = _State(self._loader_state)
            try:
                if self.trainer_mode != "sync":
                    self._take_back_failed()
                self._save_checkpoint()
            except RunEnded:
                pass
            except Exception as error:
                self._unsaved = f"step {step} could not be saved: {(str(error).splitlines() or [repr(error)])[-1]}"
            self.global_steps, self.train_dataloader = now, loader
        return "; ".join(filter(None, (self._unsaved, self._go_on())))

    def _go_on(self) -> str:
        if not self._saved:
            return f"no checkpoint was saved (trainer.save_freq={self.config.trainer.save_freq})"
        auto = self.config.trainer.resume_mode == "auto"
        how = "the same command" if auto else "the same command with trainer.resume_mode=auto"
        return f"{how} goes on from step {self._saved[-1]} in {saving.folder_of(self._root, self._saved[-1])}"

    def _save_checkpoint(self) -> None:
        """verl's, with a full disk survived: the last good checkpoint stays, training goes on, the next save may work.

        Raises:
            RunEnded: A rank failed while others wrote, which now wait for it at a barrier.
        """
        if self.config.actor_rollout_ref.actor.get("checkpoint", {}).get("async_save", False):
            super()._save_checkpoint()  # written later and by others; verl names it when it is there
            self._saved.append(self.global_steps)
            return
        step, root = self.global_steps, self._root
        keep, before = saving.to_keep(self.config.trainer, self.use_critic), saving.read_tracker(root)
        last = next(reversed(self._saved), None)
        began = False
        try:
            if keep and keep > 1:  # as verl does, room is made beforehand where one stays all the same
                self._saved = saving.prune(root, self._saved, keep - 1)
            saving.check_room(root, last)
            began = True
            with saving.deleting_nothing(self.config.trainer):
                super()._save_checkpoint()
        except Exception as error:
            why = saving.disk_trouble(error)
            if why is None or (before != step == saving.read_tracker(root)):  # all is written: it came after
                raise
            saving.undo(root, step, last if before == step else before)
            self._unsaved = f"step {step} could not be saved: {why}"
            if began and self.actor_rollout_wg.world_size > 1:
                raise RunEnded(f"{self._unsaved}; {self._go_on()}") from None
            logger.error("%s; training goes on, and the next save may work; %s", self._unsaved, self._go_on())
            return
        self._unsaved = None
        self._saved = saving.prune(self._root, [*self._saved, self.global_steps], keep)

    def _load_checkpoint(self) -> None:
        if self.config.trainer.resume_mode == "auto":
            saving.mend_tracker(self._root)
        super()._load_checkpoint()
        self._finished_step = self.global_steps
        if not self.global_steps:
            return
        if saving.read_tracker(self._root) == self.global_steps:
            self._saved = [self.global_steps]
        if self.trainer_mode != "sync":
            drop_trained()

    # ------------------------------ prompts under way ------------------------------

    def _take_back_failed(self, partition_id: str = "train") -> None:
        """Groups that the death made fail wait again, and are issued again by the run that goes on."""
        items = (tq.kv_list(partition_id) or {}).get(partition_id, {})
        failed = [key for key, tag in items.items() if tag.get("is_prompt") and tag.get("status") == "failure"]
        if failed:
            tags = [{**items[key], "status": "pending"} for key in failed]
            tq.kv_batch_put(keys=failed, partition_id=partition_id, tags=tags)

    def _add_async_warmup_batches(self, num_warmup_batches: int | float) -> None:
        super()._add_async_warmup_batches(num_warmup_batches)
        # A checkpoint from the middle of a step holds that step's batch too, beside those ahead. Without this the first
        # step would hand out another one, and there would be one too many ahead until the end.
        ahead = math.floor(num_warmup_batches * self.config.data.train_batch_size)
        self._handed_out = max(0, self._restored_tq_prompt_count - ahead)

    def _add_batch_to_generate(self) -> None:
        handed_out, self._handed_out = self._handed_out, 0
        if not handed_out:
            super()._add_batch_to_generate()
        elif (missing := self.config.data.train_batch_size - handed_out) > 0:
            self._add_prompts_to_generate(missing)


def drop_trained(partition_id: str = "train") -> int:
    """Clear rows whose prompt is gone: verl saves before it clears a step's rows, and after a restart nobody would."""
    items = (tq.kv_list(partition_id) or {}).get(partition_id, {})
    prompts = {key for key, tag in items.items() if tag.get("is_prompt", False)}
    rows = [key for key in items if key not in prompts and key.split("_", 1)[0] not in prompts]
    if rows:
        tq.kv_clear(keys=rows, partition_id=partition_id)
    return len(rows)
