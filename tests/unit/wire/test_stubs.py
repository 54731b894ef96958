from importlib.resources import files

from klamm.wire.stubs import stub_text


def test_the_generated_type_stub_file_of_messages_is_up_to_date() -> None:
    current = files("klamm.wire").joinpath("messages.pyi").read_text(encoding="utf-8")

    assert current == stub_text(), "run: python -m klamm.wire.stubs > src/klamm/wire/messages.pyi"
