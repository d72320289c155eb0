"""Chat templates: ``ChatTemplate`` renders messages, ``encode_chat`` turns the text into ids."""

from slipstream.chat.template import ChatTemplate, Message, chat_slices, encode_chat

__all__ = ["ChatTemplate", "Message", "chat_slices", "encode_chat"]
