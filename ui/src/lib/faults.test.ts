import { expect, test } from 'vitest';
import { faultText } from './faults';
import { en } from './i18n/en';
import { ru } from './i18n/ru';

test('faults are said in the language of the reader', () => {
  const takeover = { code: 'takeover', text: 'Process 00000000000000a1 (this one) decides now, in epoch 7' };
  expect(faultText(en, takeover)).toBe(`${takeover.text}.`);
  expect(faultText(ru, takeover)).toBe('Теперь решает процесс 00000000000000a1 (этот), эпоха 7.');
  expect(faultText(ru, { code: 'store_lost', text: 'Redis does not answer' })).toBe('Redis не отвечает.');
});

test('what is not known is shown as the server wrote it', () => {
  expect(faultText(ru, { code: 'flood', text: 'Water everywhere' })).toBe('Water everywhere');
  expect(faultText(ru, { code: 'takeover', text: 'Another sentence' })).toBe('Another sentence');
});
