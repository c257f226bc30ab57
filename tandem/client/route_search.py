"""What several name servers say about one topic, put together. Pure.

             heard(a route)
    NOTHING ----------------> A ROUTE --+-- all are asked --------------------------> OVER
       |                                +-- every name has a master, one is new, and
       |                                    a request waits for that (`suspected`) --> OVER
       +-- all are asked: an unknown topic, or nobody who knows

A name server answers with the brokers that have registered with it. One that has just started, or
is cut off, lacks some of them, or names a master that is none any more; see `newest_route` for what
counts then. One that says that it is not ready, or fails, has said nothing.
"""

from tandem.client.errors import (
    BrokerError,
    ClientError,
    ConnectionCause,
    ConnectionLostError,
    RouteCause,
    RouteNotFoundError,
)
from tandem.client.routes import lacks_masters, masters_of, newest_route
from tandem.wire.errors import MalformedFrameError
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import TopicRouteData, decode_json_body


class RouteSearch:
    """One search for the route of one topic; a `Search`.

    Args:
        topic: what is looked for.
        known: the route so far, None if there is none.
        suspected: something that followed `known` failed: the first complete route that is news
            ends the search, for somebody waits for it. Else all name servers are heard.
    """

    def __init__(self, topic: str, known: TopicRouteData | None, *, suspected: bool) -> None:
        self._topic = topic
        self._known = known
        self._suspected = suspected
        self._found: list[TopicRouteData] = []
        self._unknown_count = 0
        self._troubles: list[str] = []
        self._errors: list[ClientError] = []
        self._refused = False

    @property
    def has_answer(self) -> bool:
        """Whether a name server has a route."""
        return bool(self._found)

    @property
    def is_over(self) -> bool:
        """Whether there is a new master, and none is missing."""
        if not self._suspected or self._known is None or not self._found:
            return False
        route = newest_route(self._found, self._known)
        return (
            not lacks_masters(route)
            and _names(self._known) <= _names(route)
            and _has_news(route, self._known)
        )

    def heard(self, address: str, answer: RemotingCommand | ClientError) -> None:
        """Take what came from the name server at `address`."""
        if isinstance(answer, ClientError):
            self._note(str(answer), answer)
        elif answer.code == ResponseCode.TOPIC_NOT_EXIST:
            self._unknown_count += 1
        elif answer.code != ResponseCode.SUCCESS:
            # RocketMQ's name servers have no other refusal of a route.
            self._refused = True
            refusal = BrokerError(answer.code, answer.remark or "", address)
            self._note(f"name server {address}: {answer.code} {answer.remark}", refusal)
        else:
            try:
                self._found.append(decode_json_body(answer.body, TopicRouteData))
            except MalformedFrameError as error:
                malformed = ConnectionLostError(address, ConnectionCause.MALFORMED, str(error))
                self._note(f"name server {address}: {error}", malformed)

    def _note(self, trouble: str, error: ClientError) -> None:
        self._troubles.append(trouble)
        self._errors.append(error)

    def route(self) -> TopicRouteData | None:
        """Return all of it together; None if name servers say that there is no such topic.

        Raises:
            RouteNotFoundError: nobody knows. It may pass.
        """
        if self._found:
            return newest_route(self._found, self._known)
        if self._unknown_count:
            return None
        verb = "is ready" if self._refused else "answers"
        raise RouteNotFoundError(
            self._topic,
            RouteCause.STARTING if self._refused else RouteCause.NO_NAME_SERVER,
            f"no name server {verb} ({'; '.join(self._troubles)})",
            may_pass=True,
            errors=self._errors,
        )


def _names(route: TopicRouteData) -> set[str]:
    return {broker.broker_name for broker in route.broker_datas}


def _has_news(found: TopicRouteData, known: TopicRouteData) -> bool:
    """Whether a route has a master that the known one has not."""
    before = masters_of(known)
    return any(
        address and before.get(name) != (epoch, address)
        for name, (epoch, address) in masters_of(found).items()
    )
