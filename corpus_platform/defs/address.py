"""Where the web UI listens: loopback, or another address where something in front asks who calls.

Dagster itself knows no login: whoever reaches its port can launch runs and read logs.
"""

import ipaddress
import socket
from dataclasses import dataclass

from corpus_platform.errors import UsageError

__all__ = ["LOOPBACK", "Address", "address_on", "listening_ip"]

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Address:
    """An IP address and a port to listen on."""

    ip: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine can reach it."""
        return _is_loopback(self.ip)

    @property
    def reached_at(self) -> str:
        """The IP address at which this machine reaches it."""
        if not ipaddress.ip_address(self.ip).is_unspecified:
            return self.ip
        return "::1" if ":" in self.ip else LOOPBACK

    @property
    def url(self) -> str:
        """Where a browser of this machine finds it, with a slash at the end."""
        host = f"[{self.reached_at}]" if ":" in self.reached_at else self.reached_at
        return f"http://{host}:{self.port}/"


def listening_ip(host: str, *, behind_a_proxy: bool) -> str:
    """Return the IP address of a name to listen on.

    Raises UsageError when it has none, or when others could reach one of them and nothing in front
    asks who they are.
    """
    found = _resolve(host)
    if not behind_a_proxy and (open_ones := [ip for ip in found if not _is_loopback(ip)]):
        where = host if host in open_ones else f"{host} ({open_ones[0]})"
        raise UsageError(
            f"--host {where} is not loopback: Dagster has no login, so whoever reaches the port can"
            " launch runs and read logs; leave --host out and use an ssh tunnel, or put a proxy that"
            " asks for a password in front and say so with --i-have-an-authenticating-proxy"
        )
    return found[0]  # what was looked at, not the name: that may mean another by the time


def address_on(ip: str, port: int) -> Address:
    """Return an address to listen on; port 0 becomes a free one.

    Raises UsageError when another program has the port, or the address is none of this machine.
    """
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server will
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((ip, port))
            probe.listen()
            return Address(ip, probe.getsockname()[1])
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(
            f"port {port} on {ip} cannot be used: {why}; name another with --port"
        ) from error


def _resolve(host: str) -> list[str]:
    """Return the IP addresses of a name, IPv4 first."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host {host!r} is no address of this machine: {error}") from error
    ips = dict.fromkeys(str(address[0]) for *_, address in found)
    return sorted(ips, key=lambda ip: ":" in ip)


def _is_loopback(ip: str) -> bool:
    return ipaddress.ip_address(ip).is_loopback
