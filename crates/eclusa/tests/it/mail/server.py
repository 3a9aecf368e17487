"""An SMTP server (aiosmtpd) whose replies a test scripts.

Each line of standard input is a JSON object of scripts by step: `connect`, `mail`, `data command`, `data`
(its end), or `rcpt ADDRESS`. A script is a
list of replies, used one after the other; then the server accepts again. A reply is a text such as "450 4.2.1 busy", or
`drop` (the connection is closed without a reply) or `hang` (there is none). The last one stays if the list ends in `...`.
What happens is printed as JSON, one object a line. The server ends with its standard input.
"""

import asyncio
import json
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult

options = json.loads(sys.argv[1])
scripts = {}


def tell(event, **more):
    print(json.dumps({"event": event, **more}), flush=True)


async def scripted(step, server):
    """The reply to `step`, if there is a script for it."""
    replies = scripts.get(step)
    if not replies:
        return None
    reply = replies[0]
    if replies[1:2] != ["..."]:
        replies.pop(0)
    if reply == "hang":
        tell("hang", step=step)
        await asyncio.sleep(3600)
    if reply == "drop":
        tell("drop", step=step)
        server.transport.abort()
        await asyncio.sleep(3600)
    return None if reply.startswith("250") else reply


class Handler:
    async def handle_MAIL(self, server, session, envelope, address, options):
        reply = await scripted("mail", server)
        if reply:
            return reply
        envelope.mail_from = address
        return "250 2.1.0 OK"

    async def handle_RCPT(self, server, session, envelope, address, options):
        reply = await scripted("rcpt " + address, server)
        tell("rcpt", to=address, reply=reply)
        if reply:
            return reply
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server, session, envelope):
        text = envelope.content.decode("ascii")
        tell("data", sender=envelope.mail_from, to=envelope.rcpt_tos, text=text,
             tls=session.ssl is not None or bool(options.get("implicit")), user=getattr(session, "user", None))
        reply = await scripted("data", server)
        if reply:
            return reply
        tell("accepted", to=envelope.rcpt_tos, text=text)
        return "250 2.0.0 queued as 7"


class Server(SMTP):
    async def smtp_DATA(self, arg):
        reply = await scripted("data command", self)
        if reply:
            # As servers do, the sender and the recipients stay.
            await self.push(reply)
            return
        await super().smtp_DATA(arg)

    async def _handle_client(self):
        tell("connect")
        reply = await scripted("connect", self)
        if reply:
            await self.push(reply)
            self.transport.close()
            return
        await super()._handle_client()


def authenticate(server, session, envelope, mechanism, data):
    known = (data.login.decode(), data.password.decode()) == tuple(options["auth"])
    tell("auth", mechanism=mechanism, ok=known)
    if known:
        session.user = data.login.decode()
    return AuthResult(success=known, handled=False)


def protocol(tls):
    more = {}
    if options.get("auth"):
        more = {"authenticator": authenticate, "auth_require_tls": bool(tls) and not options.get("implicit"),
                "auth_exclude_mechanism": options.get("exclude", [])}
    return Server(Handler(), hostname="test", tls_context=None if options.get("implicit") else tls,
                  require_starttls=bool(options.get("require")), **more)


async def main():
    tls = None
    if options.get("cert"):
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(options["cert"], options["key"])
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: protocol(tls), "127.0.0.1", options.get("port", 0),
                                      ssl=tls if options.get("implicit") else None)
    tell("listening", port=server.sockets[0].getsockname()[1])
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        scripts.update(json.loads(line))
        tell("scripted")


asyncio.run(main())
