//! Questions to functions, as `cmsgpack` reads them: text may be any bytes, and there is no other kind of bytes.

/// A value of a question.
#[derive(Debug, Clone)]
pub(super) enum Value<'a> {
    Nil,
    Bool(bool),
    Int(i64),
    Bytes(&'a [u8]),
    Owned(Vec<u8>),
    List(Vec<Value<'a>>),
    Map(Vec<(&'static str, Value<'a>)>),
}

impl<'a> Value<'a> {
    pub(super) fn text(text: &'a str) -> Self {
        Value::Bytes(text.as_bytes())
    }

    pub(super) fn or_nil<T>(value: Option<T>, some: impl FnOnce(T) -> Value<'a>) -> Self {
        value.map_or(Value::Nil, some)
    }

    fn is_nothing(&self) -> bool {
        matches!(self, Value::Nil) || matches!(self, Value::List(values) if values.is_empty())
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Value::Nil => out.push(0xc0),
            Value::Bool(value) => out.push(if *value { 0xc3 } else { 0xc2 }),
            Value::Int(value) => write_int(*value, out),
            Value::Bytes(bytes) => write_bytes(bytes, out),
            Value::Owned(bytes) => write_bytes(bytes, out),
            Value::List(values) => {
                write_len(values.len(), (0x90, 0xdc), out);
                values.iter().for_each(|value| value.write(out));
            }
            Value::Map(fields) => {
                // What is not named is nothing.
                let named = || fields.iter().filter(|(_, value)| !value.is_nothing());
                write_len(named().count(), (0x80, 0xde), out);
                for (name, value) in named() {
                    write_bytes(name.as_bytes(), out);
                    value.write(out);
                }
            }
        }
    }
}

/// All values of a question, one after the other.
pub(super) fn pack(values: &[Value<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    values.iter().for_each(|value| value.write(&mut out));
    out
}

/// A list of values that were packed before.
pub(super) fn list(items: &[&Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(items.iter().map(|item| item.len()).sum::<usize>() + 5);
    write_len(items.len(), (0x90, 0xdc), &mut out);
    items.iter().for_each(|item| out.extend_from_slice(item));
    out
}

fn write_int(value: i64, out: &mut Vec<u8>) {
    if let Ok(small @ 0..128) = u8::try_from(value) {
        out.push(small);
    } else {
        out.push(0xd3);
        out.extend_from_slice(&value.to_be_bytes());
    }
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    match bytes.len() {
        len @ 0..32 => out.push(0xa0 | u8::try_from(len).unwrap_or_default()),
        len => {
            out.push(0xdb);
            out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
        }
    }
    out.extend_from_slice(bytes);
}

/// Lengths below sixteen have codes of their own; others are 16 bits wide, or 32 under the next code.
fn write_len(len: usize, (small, wide): (u8, u8), out: &mut Vec<u8>) {
    if let Ok(len @ 0..16) = u8::try_from(len) {
        out.push(small | len);
    } else if let Ok(len) = u16::try_from(len) {
        out.push(wide);
        out.extend_from_slice(&len.to_be_bytes());
    } else {
        out.push(wide + 1);
        out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
    }
}
