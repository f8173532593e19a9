"""Generated from proto/ by tools/gen_proto. Never edited; a test proves it fresh."""
