"""What of the operator's environment reaches the services, and what stays."""

from stack.home import Home
from stack.operator_settings import service_variables


def test_the_services_own_variables_are_taken_and_kept() -> None:
    first = service_variables({}, {"ALERTS_SMTP_HOST": "mail.example", "ALERTS_FEED_SOURCE": "csv:/x", "PATH": "/bin"})
    secret = service_variables({}, {"ALERTS_SOURCE_TOKEN": "k"})  # any name: feeds' settings refer to it
    assert service_variables(secret, {}) == {"ALERTS_SOURCE_TOKEN": "k"}
    assert service_variables(secret, {"ALERTS_SOURCE_TOKEN": ""}) == {}
    assert first == {"ALERTS_SMTP_HOST": "mail.example", "ALERTS_FEED_SOURCE": "csv:/x"}
    assert service_variables(first, {}) == first
    assert service_variables(first, {"ALERTS_SMTP_HOST": ""}) == {"ALERTS_FEED_SOURCE": "csv:/x"}


def test_what_the_stack_decides_is_not_the_operator_s() -> None:
    own = {"ALERTS_KAFKA": "elsewhere:1", "ALERTS_API_PORT": "1", "ALERTS_HEALTH_FILE": "/x", "ALERTS_HOME": "/y"}
    assert service_variables({}, own) == {}


def test_a_home_keeps_one_secret_key(tmp_path) -> None:
    home = Home(tmp_path)
    key = home.secret_key()
    assert Home(tmp_path).secret_key() == key
    assert (tmp_path / "secrets" / "secret-key").stat().st_mode & 0o777 == 0o600
