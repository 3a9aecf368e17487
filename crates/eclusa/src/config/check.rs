//! Checks of values in requests. Messages never repeat the value: it is personal data.

use super::types::Check;

impl Check {
    /// Checks `value`; the error says what is wrong with it.
    pub fn verify(&self, value: &str) -> Result<(), String> {
        match self {
            Self::Cpf => cpf(value),
            Self::Cnpj => cnpj(value),
            Self::Required if value.is_empty() => Err("must not be empty".into()),
            Self::Required => Ok(()),
        }
    }
}

/// Eleven digits; the last two are check digits.
fn cpf(value: &str) -> Result<(), String> {
    if value.len() != 11 || !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("must be the 11 digits of a CPF, without dots or dash".into());
    }
    if all_equal(value) {
        return Err("must be a CPF that was issued: its digits are all the same".into());
    }
    check_digits(value, usize::MAX)
        .then_some(())
        .ok_or_else(|| "must be a CPF: its check digits are wrong".into())
}

/// Twelve digits (from 2026 on also capital letters) and two check digits.
fn cnpj(value: &str) -> Result<(), String> {
    let bytes = value.as_bytes();
    let allowed = |byte: &u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
    if bytes.len() != 14 || !bytes.iter().all(allowed) || !bytes[12..].iter().all(u8::is_ascii_digit) {
        return Err(
            "must be the 14 characters of a CNPJ (12 digits or capital letters and 2 digits), without \
                    dots, slash or dash"
                .into(),
        );
    }
    if all_equal(value) {
        return Err("must be a CNPJ that was issued: its digits are all the same".into());
    }
    check_digits(value, 8).then_some(()).ok_or_else(|| "must be a CNPJ: its check digits are wrong".into())
}

fn all_equal(value: &str) -> bool {
    value.bytes().all(|byte| Some(&byte) == value.as_bytes().first())
}

/// Whether the last two characters are the check digits of the others, modulo 11. Weights count up from 2 at the right
/// and restart after `cycle` of them. A character counts as its ASCII code minus 48, so a digit counts as itself.
fn check_digits(value: &str, cycle: usize) -> bool {
    let values: Vec<usize> = value.bytes().map(|byte| usize::from(byte.saturating_sub(b'0'))).collect();
    let check = |body: &[usize]| {
        let weighted = body.iter().rev().enumerate().map(|(at, value)| value * (at % cycle + 2));
        match weighted.sum::<usize>() % 11 {
            0 | 1 => 0,
            rest => 11 - rest,
        }
    };
    let len = values.len();
    (len - 2..len).all(|at| check(&values[..at]) == values[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_numbers_pass() {
        // The first is the example of the product's sources.
        for good in ["05227892180", "52998224725", "11144477735", "10000000108"] {
            assert_eq!(Check::Cpf.verify(good), Ok(()), "{good}");
        }
        // The last is the tax authority's example of the form with letters.
        for good in ["11222333000181", "00000000000191", "12ABC34501DE35"] {
            assert_eq!(Check::Cnpj.verify(good), Ok(()), "{good}");
        }
        assert_eq!(Check::Required.verify("x"), Ok(()));
    }

    #[test]
    fn one_wrong_digit_is_found_wherever_it_is() {
        for (check, good) in [(Check::Cpf, "05227892180"), (Check::Cnpj, "12ABC34501DE35")] {
            for at in 0..good.len() {
                let mut bad = good.as_bytes().to_vec();
                bad[at] = if bad[at] == b'9' { b'0' } else { bad[at] + 1 };
                let bad = String::from_utf8(bad).unwrap();
                assert!(check.verify(&bad).is_err(), "{bad}");
            }
        }
    }

    #[test]
    fn other_forms_are_refused_with_the_expected_form() {
        for bad in
            ["", "052.278.921-80", "5227892180", "052278921800", "0522789218a", "０５２２７８９２１８０"]
        {
            assert!(Check::Cpf.verify(bad).unwrap_err().contains("11 digits"), "{bad}");
        }
        for bad in ["", "11.222.333/0001-81", "1122233300018", "12abc34501de35", "12ABC34501DE3X"] {
            assert!(Check::Cnpj.verify(bad).unwrap_err().contains("14 characters"), "{bad}");
        }
        for digit in '0'..='9' {
            let same = |len| digit.to_string().repeat(len);
            assert!(Check::Cpf.verify(&same(11)).unwrap_err().contains("all the same"));
            assert!(Check::Cnpj.verify(&same(14)).unwrap_err().contains("all the same"));
        }
        assert_eq!(Check::Required.verify(""), Err("must not be empty".into()));
    }

    #[test]
    fn messages_never_repeat_the_value() {
        for (check, bad) in
            [(Check::Cpf, "05227892181"), (Check::Cnpj, "12ABC34501DE36"), (Check::Cpf, "123")]
        {
            assert!(!check.verify(bad).unwrap_err().contains(bad));
        }
    }
}
