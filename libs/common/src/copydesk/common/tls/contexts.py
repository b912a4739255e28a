"""SSL contexts for links on which both sides show a certificate: TLS 1.3, no authority but the named."""

from __future__ import annotations

import ssl

from copydesk.common.tls.files import AUTHORITY, CERTIFICATE, TlsFiles


def client_context(files: TlsFiles, *, named: bool = True) -> ssl.SSLContext:
    """Return what a client connects with; the server's certificate must be `named` as the client says."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = named
    return _completed(context, files)


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return what a server accepts with; it asks each client for a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Connections last for days: resuming one would gain nothing, and would outlive a change of certificates.
    context.num_tickets = 0
    return _completed(context, files)


def _completed(context: ssl.SSLContext, files: TlsFiles) -> ssl.SSLContext:
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        # A key with a password is asked for on the terminal otherwise.
        context.load_cert_chain(files.certificate, files.key, password="")
    except (OSError, ssl.SSLError) as error:
        raise files.error(CERTIFICATE, _reason(error)) from error
    try:
        context.load_verify_locations(files.authority)
    except (OSError, ssl.SSLError) as error:
        raise files.error(AUTHORITY, _reason(error)) from error
    return context


def _reason(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error)
