"""Who can be written to: agents that are seen, wrapped, or elsewhere, and whoever was before.

A wrapped agent is known by its wrapper's name; what is seen of it in other ways is the same agent.
A name that several have is that of the one who is ours.
"""

from collections.abc import Callable, Collection, Iterable

from bullpen.api.errors import ApiError
from bullpen.api.lookup import find_agent
from bullpen.api.talk import Contact
from bullpen.daemon.elsewhere import Elsewhere
from bullpen.daemon.identity import IdentityBook
from bullpen.daemon.wrappers import Wrapper, Wrappers
from bullpen.mail.directory import Addressee, Directory
from bullpen.mail.errors import AddressAmbiguous
from bullpen.mail.policy import USER
from bullpen.model.observations import Origin
from bullpen.model.places import is_same_server
from bullpen.model.states import Activity, Provider
from bullpen.model.views import AgentState

__all__ = ["Contacts", "seed_status"]

_STATUS = {Activity.STARTING: "STARTING", Activity.EXITED: "NOT_STARTED", Activity.IDLE: "IDLE"}
FORMER_KEPT = 1000

_HOOKED = frozenset({"hooks", "app_server", "http"})


class Contacts(Directory):
    """Everybody, from what is seen and who is wrapped."""

    def __init__(
        self,
        agents: Callable[[], Iterable[AgentState]],
        wrappers: Wrappers,
        identities: IdentityBook,
        elsewhere: Elsewhere,
        *,
        has_told: Callable[[str], bool],
    ) -> None:
        self._agents = agents
        self._wrappers = wrappers
        self._identities = identities
        self._elsewhere = elsewhere
        self._has_told = has_told
        self._former: dict[str, None] = {}  # the names of those who were seen, in that order
        elsewhere.is_ours = self.is_ours

    # --------------------------------------------------------------------------------- for the mail

    def find(self, address: str) -> Addressee | None:
        if address == USER:
            return Addressee(name=USER, activity=Activity.IDLE)
        if (wrapper := self._wrappers.find(address)) is not None:
            return self._wrapped(wrapper)
        if (agent := self._meant(address)) is not None:
            return self._seen(agent)
        # A name goes before a family: what is for one that has ended waits for its return.
        if address in self._former or address in self._identities.names:
            return Addressee(name=address, activity=Activity.EXITED, is_present=False)
        if (kin := self._kin(address)) is not None:
            return self._seen(kin)
        others = [each.name for each in self._elsewhere.meant(address)]
        if len(others) > 1:
            raise AddressAmbiguous(address, others)
        if not others or self.is_ours(others[0]):
            return None
        activity = self._elsewhere.activity(others[0])
        return Addressee(name=others[0], activity=activity, tells_turns=True)

    def everybody(self) -> tuple[Addressee, ...]:
        """Return all who are ours: what is meant for everybody does not leave the room."""
        wrapped = {each.name: self._wrapped(each) for each in self._wrappers.all()}
        seen = {each.name: self._seen(each) for each in self._agents() if self._is_here(each)}
        return tuple({**seen, **wrapped}.values())

    def _meant(self, address: str) -> AgentState | None:
        """Return the agent of a name, a pane or a session."""
        here = [each for each in self._agents() if self._is_here(each)]
        try:
            return find_agent(here, address)
        except ApiError as error:
            raise AddressAmbiguous(address, error.data["names"]) from error

    def _kin(self, address: str) -> AgentState | None:
        """Return the only agent of a provider."""
        if address not in set(Provider):
            return None
        kin = [each for each in self._agents() if self._is_here(each) and each.provider == address]
        if len(kin) > 1:
            raise AddressAmbiguous(address, [each.name for each in kin])
        return kin[0] if kin else None

    def _seen(self, agent: AgentState) -> Addressee:
        self._former.pop(agent.name, None)
        self._former[agent.name] = None
        while len(self._former) > FORMER_KEPT:
            del self._former[next(iter(self._former))]
        return Addressee(
            name=agent.name, activity=agent.activity, tells_turns=self._has_told(agent.name)
        )

    def _wrapped(self, wrapper: Wrapper) -> Addressee:
        tells = bool(_HOOKED.intersection(wrapper.doors)) or self._has_told(wrapper.name)
        return Addressee(name=wrapper.name, activity=self.activity(wrapper.name), tells_turns=tells)

    def _is_here(self, agent: AgentState) -> bool:
        return agent.activity is not Activity.EXITED

    # ---------------------------------------------------------------------------- for those who ask

    @property
    def names(self) -> set[str]:
        """The names of all who are there, ours or not."""
        others = {each.name for each in self._elsewhere.all()}
        return {each.name for each in self.everybody()} | others

    def is_there(self, name: str) -> bool:
        """Whether somebody who is there has a name."""
        agent = self.agent(name)
        is_here = agent is not None and self._is_here(agent)
        return is_here or self._wrappers.find(name) is not None

    def is_ours(self, name: str) -> bool:
        """Whether a name is that of an agent that is wrapped or seen here, or was."""
        if name == USER or name in self._former or name in self._identities.names:
            return True
        return self._wrappers.find(name) is not None or self.agent(name) is not None

    def agent(self, name: str) -> AgentState | None:
        """Return what is seen of an agent."""
        return next((each for each in self._agents() if each.name == name), None)

    def activity(self, name: str) -> Activity:
        """Return what an agent is doing: as it is seen, or else as its wrapper says."""
        agent, wrapper = self.agent(name), self._wrappers.find(name)
        if agent is not None and agent.activity not in (Activity.UNKNOWN, Activity.EXITED):
            return agent.activity
        if wrapper is not None:
            return wrapper.activity
        if not self.is_ours(name) and self._elsewhere.get(name) is not None:
            return self._elsewhere.activity(name)
        return agent.activity if agent is not None else Activity.EXITED

    def provider(self, name: str) -> Provider:
        """Return which program an agent is."""
        agent, wrapper, identity = (
            self.agent(name),
            self._wrappers.find(name),
            self._identities.find(name),
        )
        if wrapper is not None:
            return wrapper.said.provider
        if agent is not None:
            return agent.provider
        return identity.provider if identity is not None else Provider.OTHER

    def contact(
        self,
        name: str,
        *,
        doors: Collection[str] = (),
        waiting: int = 0,
        working_on: str | None = None,
        holding: str = "",
    ) -> Contact:
        """Return all there is to say of somebody."""
        agent, wrapper = self.agent(name), self._wrappers.find(name)
        identity = self._identities.find(name)
        activity = self.activity(name)
        if not self.is_ours(name) and (other := self._elsewhere.get(name)) is not None:
            return Contact(
                name=name,
                provider=Provider.OTHER,
                activity=activity,
                status=seed_status(activity),
                doors=tuple(doors),
                waiting=waiting,
                working_on=working_on,
                holding=holding,
                profile=other.profile,
                cwd=other.cwd,
                pid=other.pid,
                port=other.port,
                endpoint=other.url,
                also=other.also,
            )
        port = wrapper.said.port if wrapper is not None else None
        return Contact(
            name=name,
            provider=self.provider(name),
            activity=activity,
            status=wrapper.state.status if wrapper is not None else seed_status(activity),
            is_present=wrapper is not None or (agent is not None and self._is_here(agent)),
            is_wrapped=wrapper is not None,
            doors=tuple(doors),
            waiting=waiting,
            working_on=working_on,
            holding=holding,
            profile=identity.profile if identity is not None else "",
            cwd=wrapper.said.cwd if wrapper is not None else agent.cwd if agent else "",
            pid=wrapper.pid if wrapper is not None else agent.pid if agent else 0,
            port=port,
            endpoint=f"http://localhost:{port}" if port else "",
            session_key=agent.session_key if agent is not None else None,
            submit_sequence=wrapper.said.submit_sequence if wrapper is not None else "\n",
        )

    def of_process(self, pids: Collection[int]) -> str | None:
        """Return the agent that one of these processes is: of somebody's ancestors, the nearest."""
        by_pid = {each.pid: each.name for each in self._agents() if self._is_here(each)}
        by_pid |= {each.pid: each.name for each in self._wrappers.all()}
        by_pid.pop(0, None)
        return next((by_pid[pid] for pid in pids if pid in by_pid), None)

    def of_origin(self, origin: Origin, session_key: str = "") -> str | None:
        """Return the agent that told something, by where it came from."""
        if (found := self.of_process([origin.pid])) is not None:
            return found
        for agent in self._agents():
            if session_key and agent.session_key == session_key:
                return agent.name
            if (
                origin.tmux_pane
                and agent.pane is not None
                and agent.pane.pane_id == origin.tmux_pane
                and agent.place is not None
                and is_same_server(agent.place.tmux_socket, origin.tmux_socket)
            ):
                return agent.name
        return None


def seed_status(activity: Activity) -> str:
    """Return the seed's word for what an agent is doing."""
    return _STATUS.get(activity, "BUSY")
