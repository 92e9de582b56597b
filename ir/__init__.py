"""The intermediate representation: types, op table, builder, verifier, text form."""
