import { mount } from 'svelte';
import 'uplot/dist/uPlot.min.css';
import './styles/tokens.css';
import './styles/base.css';
import './styles/layout.css';
import App from './App.svelte';

const target = document.getElementById('app');
if (target) mount(App, { target });
