"""Single requests: what is asked, what became of it, and the line about each in the history."""
import asyncio
import dataclasses
import json

from swarm import Call, Connection, step, take

PATIENCE_S = 4  # a client's, for one answer
UNANSWERED = (OSError, asyncio.TimeoutError)


@dataclasses.dataclass(eq=False)
class Op:
    """A call: what is asked, under which key; `said`: the last outcome, `unknown`: some outcome was never learned."""
    number: int
    do: str
    coupon: str
    user: str = None
    key: str = None
    rid: str = None
    body: dict = None
    said: str = None
    unknown: bool = False
    code: str = None
    reply: dict = None

    @property
    def ok(self):
        return self.said == "ok"

    def learn(self, out, reply=None):
        """What was ok once stays so here; whether it does, the checker sees from the history."""
        self.unknown = self.unknown or out == "unknown"
        if out == "ok" or not self.ok:
            self.said, self.reply = out, reply

    def item(self):
        """Of a batch."""
        return {"key": self.key, "user": self.user, **self.body}

    def call(self):
        if self.do == "take":
            return take(self.coupon, self.user, self.key, **self.body)
        if self.do == "counts":
            return Call("GET", f"/coupons/{self.coupon}/counts")
        if self.do == "user":
            return Call("GET", f"/coupons/{self.coupon}/users/{self.user}")
        if self.do == "erase":
            return Call("DELETE", f"/coupons/-/users/{self.user}")
        if self.do == "patch":
            return Call("PATCH", f"/coupons/{self.coupon}", self.body, headers={"If-Match": "*"})
        return step(self.coupon, self.rid, self.do, self.key, **(self.body or {}))


def outcome_of(status, code):
    """nothing was done for what is refused; of every 5xx but busy, nobody knows."""
    if status < 300:
        return "ok"
    return "refused" if status < 500 or code == "busy" else "unknown"


class Asker:
    """Sends single attempts over kept connections, and records them."""

    def __init__(self, ways, recorder):
        self.ways, self.recorder, self.connections = ways, recorder, {}

    async def ask(self, op, via):
        i = self.recorder.ask(op.number, op.do, op.coupon, op.user, op.key, op.rid, op.body)
        try:
            status, headers, text = await self._exchange(op.call(), via)
        except UNANSWERED as e:
            self._unknown(i, op, e)
            return
        headers = {name.lower(): value for name, value in headers}
        body = json.loads(text) if text else None
        if status < 300 and op.do == "patch":
            body = {"version": int(headers["etag"].strip('"'))}
        self._answered(i, op, status, headers.get("idempotent-replayed") == "true", body)

    async def ask_together(self, ops, via):
        """Takings of one coupon, as the items of one batch; what is answered of each is recorded as if it came alone."""
        numbers = [self.recorder.ask(op.number, op.do, op.coupon, op.user, op.key, op.rid, op.body, op is not ops[0])
                   for op in ops]
        batch = Call("POST", f"/coupons/{ops[0].coupon}/redemptions/batch", {"items": [op.item() for op in ops]})
        try:
            status, _, text = await self._exchange(batch, via)
        except UNANSWERED as e:
            for i, op in zip(numbers, ops):
                self._unknown(i, op, e)
            return
        body = json.loads(text)
        answers = body["items"] if status == 200 else [{"status": status, "replayed": False, "body": body}] * len(ops)
        for i, op, said in zip(numbers, ops, answers, strict=True):
            self._answered(i, op, said["status"], said["replayed"], said["body"])

    async def _exchange(self, call, via):
        connection = self.connections.get(via)
        if not connection or not connection.usable:
            connection = self.connections[via] = Connection(self.ways[via])
        try:
            return await connection.ask(call, PATIENCE_S)
        except UNANSWERED:
            connection.close()
            self.connections.pop(via, None)
            raise

    def _unknown(self, i, op, error):
        op.code = None
        op.learn("unknown")
        self.recorder.said(i, "unknown", code=type(error).__name__)

    def _answered(self, i, op, status, replayed, body):
        op.code = body.get("code") if status >= 400 else None
        out = outcome_of(status, op.code)
        op.learn(out, body)
        self.recorder.said(i, out, status, op.code, replayed, body if out == "ok" else None)

    def close(self):
        for connection in self.connections.values():
            connection.close()
