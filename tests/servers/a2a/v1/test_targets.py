"""Only what is public is posted to, however it is written."""

import pytest

from bullpen.servers.a2a.v1.targets import Forbidden, check_address, check_url


@pytest.mark.requirement("a2a:push-guard")
@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.com/",
        "http://",
        "http://user:word@example.com/",
        "http://exa mple.com/",
        "http://example.com:99999/",
        "http://example.com:0/",
        f"http://{'a' * 64}.com/",
        "http://a..b/",
        "http://[fe80::1%25eth0]/",
        "http://[::1",
        "http://10.0.0.1/",
        "http://192.168.1.1/",
        "http://169.254.169.254/latest",
        "http://[::ffff:169.254.169.254]/latest",
        "http://[::ffff:10.0.0.1]/",
        "http://0.0.0.0/",
        "http://[::]/",
        "http://[fe80::1]/",
        "http://[fd00::1]/",
        "http://[fd00:ec2::254]/latest",
        "http://100.100.100.200/latest",
        "http://168.63.129.16/",
        "http://[2002:7f00:1::]/",
        "http://[2002:a9fe:a9fe::]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[::7f00:1]/",
        "http://[fec0::1]/",
        "http://255.255.255.255/",
        "http://224.0.0.1/",
        "http://[ff02::1]/",
        "http://example.com/\r\nx: y",
        "http://example.com/\x00",
        "http://exämple.com/",
        "http://example.com/" + "a" * 5000,
    ],
)
def test_what_is_not_public_is_not_posted_to(url: str) -> None:
    for is_local in (True, False):
        with pytest.raises(Forbidden) as caught:
            check_url(url, is_local=is_local)
        assert "example" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/",
        "http://127.9.9.9/",
        "http://localhost/",
        "http://a.localhost/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
    ],
)
def test_this_machine_is_posted_to_only_for_who_is_on_it(url: str) -> None:
    check_url(url, is_local=True)
    with pytest.raises(Forbidden):
        check_url(url, is_local=False)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "64:ff9b::101:101"])
def test_what_is_public_is_posted_to(address: str) -> None:
    check_address(address, is_local=False)
