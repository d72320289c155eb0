"""Chat templates: ``ChatTemplate`` renders messages, ``encode_chat`` turns the text into ids."""

from slipstream.chat.template import ChatTemplate, Message, encode_chat

__all__ = ["ChatTemplate", "Message", "encode_chat"]
