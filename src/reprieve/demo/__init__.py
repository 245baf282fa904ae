"""The demo: an e-mail gateway for three tenants, a mail provider that fails, and a worker that is killed."""
