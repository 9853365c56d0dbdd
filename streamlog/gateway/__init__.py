"""Kafka's protocol for one log root: stock Kafka clients read and write it. See `serve`."""

from streamlog.gateway.server import Gateway, serve
from streamlog.gateway.settings import Address, GatewaySettings

__all__ = ["Address", "Gateway", "GatewaySettings", "serve"]
