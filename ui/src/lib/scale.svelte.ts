/** How much larger than usual everything is: the root's font grows with the screen, and sizes in the styles with it. */

const USUAL_PX = 16;

class Scale {
  factor = $state(1);

  constructor() {
    const measure = () => {
      this.factor = Number.parseFloat(getComputedStyle(document.documentElement).fontSize) / USUAL_PX || 1;
    };
    measure();
    addEventListener('resize', measure);
  }
}

export const scale = new Scale();
