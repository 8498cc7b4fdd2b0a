"""Two fronts, and what is between them: their calls to each other pass here, where they can be lost on the way, or refused."""
import asyncio
import contextlib
import socket
import struct
import threading

from fronts import Front
from ports import free_port

LOCAL = "127.0.0.1"
ORDER_S = 30  # for one to be obeyed, on a busy machine
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close by a reset


class Between(threading.Thread):
    """ports: where each front listens for the other; entries: where each one calls the other instead.

    What is lost on a network is sent again by TCP. So what a front sends while it is lost waits here, and arrives late, also
    where nobody waits for it any longer. `came`: connections that were opened while something was lost or refused.
    """

    def __init__(self):
        super().__init__(daemon=True)
        self.ports, self.entries = [free_port() for _ in range(2)], [free_port() for _ in range(2)]
        self.loop, self.gates, self.carrying, self.refused, self.came = None, None, set(), False, 0
        self.ready = threading.Event()

    def start(self):
        super().start()
        assert self.ready.wait(ORDER_S), "nothing passes between the fronts"

    def run(self):
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(self._run())

    async def _run(self):
        self.loop, self.all = asyncio.get_running_loop(), asyncio.current_task()
        self.gates = [asyncio.Event() for _ in range(2)]  # open: what this front sends passes
        for gate in self.gates:
            gate.set()
        with contextlib.ExitStack() as undo:
            listeners = [undo.enter_context(socket.create_server((LOCAL, port), backlog=1024)) for port in self.entries]
            self.ready.set()
            await asyncio.gather(*(self._listen(caller, listener) for caller, listener in enumerate(listeners)))

    async def _listen(self, caller, listener):
        listener.setblocking(False)
        while True:
            near, _ = await self.loop.sock_accept(listener)
            self.came += self.refused or not all(gate.is_set() for gate in self.gates)
            task = self.loop.create_task(self._carry(caller, near))
            self.carrying.add(task)
            task.add_done_callback(self.carrying.discard)

    async def _carry(self, caller, near):
        """One connection, until either side closes it."""
        far, pumps = socket.socket(), []
        try:
            if not self.refused:
                far.setblocking(False)
                await self.loop.sock_connect(far, (LOCAL, self.ports[1 - caller]))
                for s in (near, far):
                    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pumps = [self.loop.create_task(self._pump(caller, near, far)), self.loop.create_task(self._pump(1 - caller, far, near))]
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass  # nobody listens there
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for s in (near, far):
                if self.refused:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                s.close()

    async def _pump(self, sender, source, sink):
        """What this front sends, to its end."""
        data = True
        while data:
            await self.gates[sender].wait()
            data = await self.loop.sock_recv(source, 1 << 16)
            await self.gates[sender].wait()  # it may have closed meanwhile
            await self.loop.sock_sendall(sink, data)

    # ---- from other threads ----

    def lose(self, *senders):
        """What these fronts send reaches nobody, until it is healed."""
        self._order(senders, False)

    def refuse(self):
        """All connections are reset, and each new one."""
        self._order((), True)

    def heal(self):
        self._order((), False)

    def _order(self, lost, refused):
        async def obey():
            self.refused = refused
            for sender, gate in enumerate(self.gates):
                gate.clear() if sender in lost else gate.set()
            for task in self.carrying if refused else ():
                task.cancel()

        asyncio.run_coroutine_threadsafe(obey(), self.loop).result(ORDER_S)

    def stop(self):
        if self.loop and self.is_alive():
            self.loop.call_soon_threadsafe(self.all.cancel)
            self.join(ORDER_S)


class Pair(Front):
    """The first of two fronts, with the other one, and what is between them."""

    def __init__(self, **how):
        self.between = Between()
        mine, entry = ([f"{LOCAL}:{port}" for port in ports] for ports in (self.between.ports, self.between.entries))
        super().__init__([mine[0], entry[0]], 0, **how)
        self.fronts = [self, Front([entry[1], mine[1]], 1, self, **how)]

    def start(self):
        self.between.start()
        super().start()
        self.fronts[1].start()
        return self

    def stop(self):
        with contextlib.ExitStack() as undo:
            undo.callback(self.between.stop)
            undo.callback(super().stop)
            undo.callback(self.fronts[1].stop)

    def remove(self):
        super().remove()
        self.fronts[1].remove()
