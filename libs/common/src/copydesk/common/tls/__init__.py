"""TLS between the parts of Copydesk: both sides show a certificate, of one authority that is the fleet's own.

`TlsFiles` are the files that settings name, `client_tls` and `server_tls` make of them what connections are made
with. Only what is new of this kind is told here: files are read anew when they change, so that certificates are
renewed without a restart.
"""

from copydesk.common.tls.contexts import client_context, server_context
from copydesk.common.tls.credentials import ClientTls, Credentials, client_tls, server_tls
from copydesk.common.tls.errors import TlsError
from copydesk.common.tls.expiry import ENDS_SOON_SECONDS, Expiries, expiry_watched
from copydesk.common.tls.files import Lifetimes, TlsFiles, check_files

__all__ = [
    "ENDS_SOON_SECONDS",
    "ClientTls",
    "Credentials",
    "Expiries",
    "Lifetimes",
    "TlsError",
    "TlsFiles",
    "check_files",
    "client_context",
    "client_tls",
    "expiry_watched",
    "server_context",
    "server_tls",
]
