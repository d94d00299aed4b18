"""Puts the parts of channels together. Owns: which part receives which other. Does not own: any behaviour."""

from functools import partial

from palyra.engine.api.admin_log import AdminLog
from palyra.engine.api.channels import ChannelService
from palyra.engine.api.outbox import OutboxService
from palyra.engine.channels.catch_up import CatchUp
from palyra.engine.channels.commands import ChannelCommands
from palyra.engine.channels.connection import ChannelConnection
from palyra.engine.channels.dead_letters import DeadLetters
from palyra.engine.channels.directory import ChannelDirectory, ConfiguredChannel
from palyra.engine.channels.heard_positions import HeardPositions
from palyra.engine.channels.intake import ChannelIntake
from palyra.engine.channels.live_answers import LiveAnswers
from palyra.engine.channels.pairing_service import PairingService
from palyra.engine.channels.sender import OutboxSender
from palyra.engine.composition import EngineParts
from palyra.engine.setup import EngineSetup


def build_pairing(setup: EngineSetup, parts: EngineParts) -> PairingService:
    return PairingService(
        views=setup.views.pairing,
        system=parts.system_tape,
        ids=parts.ids,
        clock=setup.clock,
        key=setup.ports.sealer.marker_key,
        question_ms=setup.settings.approval_timeout_ms,
    )


def build_sender(setup: EngineSetup, directory: ChannelDirectory) -> OutboxSender:
    return OutboxSender(
        directory=directory,
        views=setup.views.outbox,
        channels=setup.views.channels,
        journal=setup.journal,
        artifacts=setup.ports.artifacts,
        clock=setup.clock,
    )


def build_outbox(setup: EngineSetup, parts: EngineParts, directory: ChannelDirectory, acts: AdminLog) -> OutboxService:
    return OutboxService(
        directory=directory,
        views=setup.views.outbox,
        journal=setup.journal,
        acts=acts,
        tasks=parts.tasks,
        clock=setup.clock,
        wake_jobs=parts.jobs_queued,
        redactor=parts.redactor,
        artifacts=setup.ports.artifacts,
    )


def build_live_answers(setup: EngineSetup, parts: EngineParts, directory: ChannelDirectory) -> LiveAnswers:
    return LiveAnswers(
        directory=directory,
        hub=parts.hub,
        outbox=setup.views.outbox,
        channels=setup.views.channels,
        journal=setup.journal,
        tasks=parts.tasks,
        clock=setup.clock,
        wake_jobs=parts.jobs_queued,
    )


def build_channels(
    setup: EngineSetup, parts: EngineParts, commands: ChannelCommands, pairing: PairingService, acts: AdminLog
) -> ChannelService:
    directory = commands.directory
    heard = HeardPositions(views=setup.views.positions, journal=setup.journal, tasks=parts.tasks, clock=setup.clock)
    intake = ChannelIntake(
        directory=directory,
        views=setup.views.channels,
        pairing=pairing,
        commands=commands,
        heard=heard,
        runs=commands.runs,
        journal=setup.journal,
        tasks=parts.tasks,
        clock=setup.clock,
        wake_jobs=parts.jobs_queued,
    )
    letters = DeadLetters(journal=setup.journal, clock=setup.clock)
    catch_ups = {
        each.rules.name: CatchUp(
            channel=each.rules.name,
            intake=intake,
            letters=letters,
            views=setup.views.positions,
            tasks=parts.tasks,
            clock=setup.clock,
        )
        for each in directory
    }
    return ChannelService(
        directory=directory,
        connections={
            each.rules.name: _connection(each, setup, directory, pairing, catch_ups[each.rules.name])
            for each in directory
        },
        catch_ups=catch_ups,
        intake=intake,
        letters=letters,
        views=setup.views.channels,
        outbox=setup.views.outbox,
        journal=setup.journal,
        acts=acts,
        clock=setup.clock,
        wake_jobs=parts.jobs_queued,
    )


def _connection(
    channel: ConfiguredChannel,
    setup: EngineSetup,
    directory: ChannelDirectory,
    pairing: PairingService,
    catch_up: CatchUp,
) -> ChannelConnection:
    def send_error() -> str:
        return directory.send_errors.current(channel.rules.name, setup.clock.now_ms())

    carry_over = partial(pairing.carry_over, channel.rules.name)
    return ChannelConnection(channel=channel, inlet=catch_up, send_error=send_error, carry_over=carry_over)
