//! Conversion between domain types and layouts.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::LayoutError;
use crate::engine::ProcessId;
use crate::gate::Share;
use crate::ids::{JobId, Name};
use crate::job::{FailureReason, Payload};
use crate::policy::{Correlation, HashKey, Scope};
use crate::time::{Span, Time};
use crate::tokens::Tokens;

/// The layout of `D`. It borrows from the domain type when encoding and from the bytes when decoding.
pub(super) trait Layout<'a, D>: Sized {
    fn from_domain(domain: &'a D) -> Self;
    fn into_domain(self) -> Result<D, LayoutError>;
}

/// Appends the version and the bytes of `value` to `out`.
pub(super) fn encode(version: u8, value: &impl Serialize, out: &mut Vec<u8>) {
    out.push(version);
    let encoded = append(value, out);
    // Appending cannot fail, and postcard only refuses sequences of unknown length, which no layout has.
    debug_assert!(encoded.is_ok(), "{encoded:?}");
}

/// Appends the bytes of `value` to `out`.
pub(super) fn append(value: &impl Serialize, out: &mut Vec<u8>) -> postcard::Result<()> {
    *out = postcard::to_extend(value, std::mem::take(out))?;
    Ok(())
}

/// Decodes what [`encode`] wrote; all bytes must be used.
pub(super) fn decode<'a, T: Deserialize<'a>>(version: u8, bytes: &'a [u8]) -> Result<T, LayoutError> {
    take_all(known(version, bytes)?)
}

/// What follows the version, which must be this one.
pub(super) fn known(version: u8, bytes: &[u8]) -> Result<&[u8], LayoutError> {
    match bytes {
        [found, rest @ ..] if *found == version => Ok(rest),
        [found, ..] if *found > version => Err(LayoutError::NewerVersion { found: *found, known: version }),
        [found, ..] => Err(unreadable(format_args!("version {found} of the layout is not supported"))),
        [] => Err(unreadable("no bytes")),
    }
}

/// Decodes a value; returns the bytes after it too.
pub(super) fn take<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, &'a [u8]), LayoutError> {
    postcard::take_from_bytes(bytes).map_err(unreadable)
}

/// Decodes a value; all bytes must be used.
pub(super) fn take_all<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, LayoutError> {
    match take(bytes)? {
        (value, []) => Ok(value),
        (_, rest) => Err(unreadable(format_args!("{} extra bytes", rest.len()))),
    }
}

pub(super) fn unreadable(problem: impl fmt::Display) -> LayoutError {
    LayoutError::Unreadable(problem.to_string())
}

/// Bytes encoded as a whole rather than one by one.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Bytes<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrow;
        impl<'de> de::Visitor<'de> for Borrow {
            type Value = Bytes<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_borrowed_bytes<E: de::Error>(self, bytes: &'de [u8]) -> Result<Bytes<'de>, E> {
                Ok(Bytes(bytes))
            }
        }
        deserializer.deserialize_bytes(Borrow)
    }
}

impl<'a> Layout<'a, Payload> for Bytes<'a> {
    fn from_domain(payload: &'a Payload) -> Self {
        Bytes(payload)
    }
    fn into_domain(self) -> Result<Payload, LayoutError> {
        Ok(self.0.into())
    }
}

/// A list encoded directly from domain values, without a temporary list of layouts.
pub(super) enum Many<'a, D, L> {
    Written(&'a [D]),
    Read(Vec<L>),
}

impl<'a, D, L: Layout<'a, D> + Serialize> Serialize for Many<'a, D, L> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Many::Written(domain) => serializer.collect_seq(domain.iter().map(L::from_domain)),
            Many::Read(layouts) => layouts.serialize(serializer),
        }
    }
}

impl<'de, D, L: Deserialize<'de>> Deserialize<'de> for Many<'_, D, L> {
    fn deserialize<Z: Deserializer<'de>>(deserializer: Z) -> Result<Self, Z::Error> {
        Vec::deserialize(deserializer).map(Many::Read)
    }
}

impl<'a, D: Clone, L: Layout<'a, D>> Layout<'a, Vec<D>> for Many<'a, D, L> {
    fn from_domain(domain: &'a Vec<D>) -> Self {
        Many::Written(domain)
    }
    fn into_domain(self) -> Result<Vec<D>, LayoutError> {
        match self {
            Many::Written(domain) => Ok(domain.to_vec()),
            Many::Read(layouts) => layouts.into_iter().map(L::into_domain).collect(),
        }
    }
}

/// Declares `$layout` as the layout of `$domain`, with the conversions in both directions.
macro_rules! layout_as {
    ($($domain:ty => $layout:ty: |$out:ident| $to:expr, |$in:ident| $back:expr;)+) => {$(
        impl<'a> Layout<'a, $domain> for $layout {
            fn from_domain($out: &'a $domain) -> Self {
                $to
            }
            fn into_domain(self) -> Result<$domain, LayoutError> {
                let $in = self;
                $back
            }
        }
    )+};
}

layout_as! {
    bool => bool: |flag| *flag, |flag| Ok(flag);
    u8 => u8: |number| *number, |number| Ok(number);
    u16 => u16: |number| *number, |number| Ok(number);
    u32 => u32: |number| *number, |number| Ok(number);
    u64 => u64: |number| *number, |number| Ok(number);
    i64 => i64: |number| *number, |number| Ok(number);
    usize => u64: |number| *number as u64, |number| Ok(usize::try_from(number).unwrap_or(usize::MAX));
    Time => u64: |time| time.as_millis(), |ms| Ok(Time::from_millis(ms));
    Span => u64: |span| span.as_millis(), |ms| Ok(Span::from_millis(ms));
    Tokens => i64: |tokens| tokens.as_micro(), |micro| Ok(Tokens::from_micro(micro));
    JobId => u128: |id| id.0, |id| Ok(JobId(id));
    Scope => u128: |scope| scope.0, |scope| Ok(Scope(scope));
    Correlation => u128: |id| id.0, |id| Ok(Correlation(id));
    HashKey => u128: |key| key.bits(), |bits| Ok(HashKey::new(bits));
    ProcessId => u64: |id| id.0, |id| Ok(ProcessId(id));
    Share => (u32, u32): |share| (share.number(), share.count()), |share| {
        Share::new(share.0, share.1).ok_or_else(|| unreadable("invalid share"))
    };
    Name => &'a str: |name| name.as_str(), |name| Name::read(name).map_err(unreadable);
    Arc<str> => &'a str: |text| text, |text| Ok(text.into());
    String => &'a str: |text| text, |text| Ok(text.to_owned());
    FailureReason => &'a str: |reason| reason.as_str(), |text| FailureReason::new(text).map_err(unreadable);
}

impl<'a, D, L: Layout<'a, D>> Layout<'a, Option<D>> for Option<L> {
    fn from_domain(domain: &'a Option<D>) -> Self {
        domain.as_ref().map(L::from_domain)
    }
    fn into_domain(self) -> Result<Option<D>, LayoutError> {
        self.map(L::into_domain).transpose()
    }
}

impl<'a, D, L: Layout<'a, D>> Layout<'a, Vec<D>> for Vec<L> {
    fn from_domain(domain: &'a Vec<D>) -> Self {
        domain.iter().map(L::from_domain).collect()
    }
    fn into_domain(self) -> Result<Vec<D>, LayoutError> {
        self.into_iter().map(L::into_domain).collect()
    }
}

impl<'a, D, L: Layout<'a, D>> Layout<'a, [D; 3]> for [L; 3] {
    fn from_domain(domain: &'a [D; 3]) -> Self {
        domain.each_ref().map(L::from_domain)
    }
    fn into_domain(self) -> Result<[D; 3], LayoutError> {
        let [first, second, third] = self;
        Ok([first.into_domain()?, second.into_domain()?, third.into_domain()?])
    }
}

impl<'a> Layout<'a, [u64; 9]> for [u64; 9] {
    fn from_domain(domain: &'a [u64; 9]) -> Self {
        *domain
    }
    fn into_domain(self) -> Result<[u64; 9], LayoutError> {
        Ok(self)
    }
}

/// What is boxed in the domain is not in its layout, which is never kept.
impl<'a, D, L: Layout<'a, D>> Layout<'a, Box<D>> for L {
    fn from_domain(domain: &'a Box<D>) -> Self {
        L::from_domain(domain)
    }
    fn into_domain(self) -> Result<Box<D>, LayoutError> {
        self.into_domain().map(Box::new)
    }
}

impl<'a, A, B, LA: Layout<'a, A>, LB: Layout<'a, B>> Layout<'a, (A, B)> for (LA, LB) {
    fn from_domain((a, b): &'a (A, B)) -> Self {
        (LA::from_domain(a), LB::from_domain(b))
    }
    fn into_domain(self) -> Result<(A, B), LayoutError> {
        Ok((self.0.into_domain()?, self.1.into_domain()?))
    }
}

impl<'a, A, B, C, LA, LB, LC> Layout<'a, (A, B, C)> for (LA, LB, LC)
where
    LA: Layout<'a, A>,
    LB: Layout<'a, B>,
    LC: Layout<'a, C>,
{
    fn from_domain((a, b, c): &'a (A, B, C)) -> Self {
        (LA::from_domain(a), LB::from_domain(b), LC::from_domain(c))
    }
    fn into_domain(self) -> Result<(A, B, C), LayoutError> {
        Ok((self.0.into_domain()?, self.1.into_domain()?, self.2.into_domain()?))
    }
}

/// Declares the layout of a struct, field by field. It compiles only if both have the same fields.
macro_rules! layout_struct {
    ($name:ident<'a> = $domain:ident $(<$arg:ty>)? { $($field:ident: $layout:ty),+ $(,)? }) => {
        #[derive(serde::Serialize, serde::Deserialize)]
        #[serde(bound(deserialize = "'de: 'a"))]
        pub(in crate::layout) struct $name<'a> { $($field: $layout),+ }
        layout_struct!(convert $name<'a>, $domain $(<$arg>)?, $($field),+);
    };
    ($name:ident = $domain:ident $(<$arg:ty>)? { $($field:ident: $layout:ty),+ $(,)? }) => {
        #[derive(serde::Serialize, serde::Deserialize)]
        pub(in crate::layout) struct $name { $($field: $layout),+ }
        layout_struct!(convert $name, $domain $(<$arg>)?, $($field),+);
    };
    (convert $name:ty, $domain:ident $(<$arg:ty>)?, $($field:ident),+) => {
        impl<'a> $crate::layout::convert::Layout<'a, $domain $(<$arg>)?> for $name {
            fn from_domain(domain: &'a $domain $(<$arg>)?) -> Self {
                let $domain { $($field),+ } = domain;
                Self { $($field: $crate::layout::convert::Layout::from_domain($field)),+ }
            }
            fn into_domain(self) -> Result<$domain $(<$arg>)?, $crate::layout::LayoutError> {
                Ok($domain { $($field: $crate::layout::convert::Layout::into_domain(self.$field)?),+ })
            }
        }
    };
}

/// Declares the layout of an enum, variant by variant. The order of the variants is part of the layout: add new ones at
/// the end.
macro_rules! layout_enum {
    ($name:ident<'a> = $domain:ident $(<$arg:ty>)? { $($variants:tt)+ }) => {
        layout_enum!(
            define [#[serde(bound(deserialize = "'de: 'a"))]] [$name<'a>] [$name] $domain [$(<$arg>)?] $($variants)+
        );
    };
    ($name:ident = $domain:ident $(<$arg:ty>)? { $($variants:tt)+ }) => {
        layout_enum!(define [] [$name] [$name] $domain [$(<$arg>)?] $($variants)+);
    };
    (define [$($bound:tt)*] [$($full:tt)+] [$name:ident] $domain:ident [$($arg:tt)*] $(
        $variant:ident $(($($item:ident: $item_layout:ty),+))? $({ $($field:ident: $field_layout:ty),+ })?
    ),+ $(,)?) => {
        #[derive(serde::Serialize, serde::Deserialize)]
        #[allow(clippy::large_enum_variant, reason = "layouts are never kept")]
        $($bound)*
        pub(in crate::layout) enum $($full)+ {
            $($variant $(($($item_layout),+))? $({ $($field: $field_layout),+ })?),+
        }
        impl<'a> $crate::layout::convert::Layout<'a, $domain $($arg)*> for $($full)+ {
            fn from_domain(domain: &'a $domain $($arg)*) -> Self {
                match domain {$(
                    $domain::$variant $(($($item),+))? $({ $($field),+ })? => $name::$variant
                        $(($($crate::layout::convert::Layout::from_domain($item)),+))?
                        $({ $($field: $crate::layout::convert::Layout::from_domain($field)),+ })?,
                )+}
            }
            fn into_domain(self) -> Result<$domain $($arg)*, $crate::layout::LayoutError> {
                Ok(match self {$(
                    $name::$variant $(($($item),+))? $({ $($field),+ })? => $domain::$variant
                        $(($($crate::layout::convert::Layout::into_domain($item)?),+))?
                        $({ $($field: $crate::layout::convert::Layout::into_domain($field)?),+ })?,
                )+})
            }
        }
    };
}

pub(super) use {layout_enum, layout_struct};
